"""The compile job for CUDA targets: IR to host C, device source, cubin, one shared library. No GPU is needed."""
