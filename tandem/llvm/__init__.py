"""LLVM as a compiler of text, in this process or in one of its own. Nothing here imports another part of the package.

So any thread may import it while another imports the rest (Note [Imports in threads] in tandem/machine/preload.py).
"""
