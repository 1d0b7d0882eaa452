#!/usr/bin/env bash
# A drafter distilled on your images, and what it gains: examples/train_on_your_folder.sh my_images runs/mine [SETTING=VALUE ...]
# my_images has pictures, each with its caption in a .txt of the same name; settings are of the training.
set -euo pipefail
images=$1 run=$2
python train.py data=imagefolder data.folder="$images" hydra.run.dir="$run" "${@:3}"
python evaluate.py +method=refined_jacobi drafter.checkpoint="$run/drafter" speed.num_prompts=4 quality.num_images=0 hydra.run.dir="$run/evaluation"
