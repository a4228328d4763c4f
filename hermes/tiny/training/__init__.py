"""Training of the embedded model, from nothing to an exported folder: `python -m hermes.tiny.training --out DIR`.

Two stages. Vision: the tower and the projector learn, on endless random frames, that each of a frame's four tokens
describes the whole frame. Text: with the vision part frozen, the features of a pool of scenes are computed once,
videos are put together from them, and the text model learns to answer many questions about each video at once.
"""
