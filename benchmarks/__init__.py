"""Side-by-side runs of xtensor and of other libraries, where they are installed.

python -m benchmarks            all of them
python -m benchmarks overhead   what a call costs beside NumPy's

Every table is measured in one run, the contestants taking turns, and says ratios: times alone mean little on
another machine, or on a busy one.
"""
