"""CUDA C++ for NVIDIA GPUs, compiled by NVRTC."""
