"""Side-by-side runs of xtensor and of other libraries, where they are installed.

python -m benchmarks            what a call costs beside NumPy's, and the engine beside its peers
python -m benchmarks overhead   the first of these
python -m benchmarks engine     the second: tables, a chart and a JSON file
python -m benchmarks functions  functions one by one, and writes in place, beside NumPy's
python -m benchmarks latency    first evaluations, compiled kernels, small arrays
python -m benchmarks memory     the peak of a long chain
python -m benchmarks accuracy   errors of the elementary functions
python -m benchmarks gradients  gradients beside their peers, and their memory

Every table is measured in one run, the contestants taking turns, and says ratios: times alone mean little on
another machine, or on a busy one.
"""
