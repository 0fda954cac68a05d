"""CUDA C++ made into PTX by NVRTC, which needs no driver and no GPU."""

from __future__ import annotations

from functools import cache

ARCHITECTURES = ("75", "90", "100")  # three code generators: two ways of the older one, and the newer one


@cache
def missing() -> str:
    """Return why nothing can be compiled here, an empty string if it can."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
    except Exception as error:  # CuPy is not installed, or its library is not found or too old
        return f"NVRTC is not to be had: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    return ""


@cache
def compiled(source: str, architecture: str = "90", options: tuple[str, ...] = ("--fmad=false",)) -> str:
    """Return the PTX of CUDA C++; RuntimeError with the compiler's words if it refuses."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(source, "kernel.cu", [], [])
    try:
        nvrtc.compileProgram(program, [f"--gpu-architecture=compute_{architecture}", "-lineinfo", *options])
    except nvrtc.NVRTCError as error:
        raise RuntimeError(nvrtc.getProgramLog(program)) from error
    else:
        return nvrtc.getPTX(program).decode().rstrip("\0")
    finally:
        nvrtc.destroyProgram(program)
