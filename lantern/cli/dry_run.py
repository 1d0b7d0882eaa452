"""The memory that a setting needs, from shapes on the meta device: python evaluate.py model=… dry_run=true. Of a
model of transformers its config.json is read, of others no file: it can be run before the weights are downloaded."""

from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from lantern.cli.run_setting import request_of
from lantern.runtime.hardware import is_bf16_fast, resolve_device
from lantern.runtime.memory import Estimate, available_memory

NUM_NODES = 64  # of a round's tree or window; methods have 16 to 61


def print_estimate(cfg: DictConfig) -> None:
    request, device = request_of(cfg), resolve_device(cfg.device)
    if cfg.dtype == "auto":
        cfg.dtype = "bfloat16" if is_bf16_fast(device) else "float32"
    cfg.device = "meta"
    target = instantiate(cfg.model).configured(cfg.sampling.cfg_scale)
    found, batch = Estimate.of(target, NUM_NODES, request.images_at_once), f"B = {request.images_at_once}"
    rows = {
        "weights": found.weights,
        f"keys and values, {batch}": found.caches,
        f"laws of a round, {batch}": found.tables,
        f"all, {batch}": sum(found),
    }
    if (free := available_memory(device)) is not None:
        rows["free on this device"] = free
    print(f"model={HydraConfig.get().runtime.choices.model} in {cfg.dtype} on {device}")
    for name, size in rows.items():
        print(f"{name:32}  {size / 2**30:8.2f} GiB")
    if device.type == "cpu":
        print("on a CPU LlamaGen's layers come a second time, and its keys and values are float32")
