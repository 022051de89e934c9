"""Models of many families in plain PyTorch style: one text for both libraries (see ../zoo.py).

A file is a family. A function without arguments whose name is in ZOO gives a Case. Sizes are for a training step of tens of
milliseconds on two cores; SCALE multiplies the batch for devices.
"""
