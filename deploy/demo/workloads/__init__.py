"""Programs that run inside Ray and make real faults.

They import nothing of this project, since Ray has an environment of its own.
"""
