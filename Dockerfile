# Lantern on a CUDA GPU:  docker build -t lantern . && docker run --gpus all -v "$PWD/runs:/lantern/runs" lantern evaluate.py +method=refined_jacobi
# The locked versions; torch's wheels bring CUDA, so that the host needs a driver alone. The compiler is compile=true's. Not built by the
# project's tests.
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends g++ && rm -rf /var/lib/apt/lists/*
WORKDIR /lantern
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt
COPY . .
ENTRYPOINT ["python"]
CMD ["evaluate.py", "--help"]
