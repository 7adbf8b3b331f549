"""Features in the unit ball, by public rules: columns with bounds, nested JSON by hashing, embeddings by a scale.

The privacy of what learns from them rests on rows of norm at most 1, and on rules that are not made from the data.
"""

from dpkit.features.bounds import PublicScaler, private_scaler
from dpkit.features.collisions import Collisions
from dpkit.features.encoded import Encoded
from dpkit.features.hashed import Hashed
from dpkit.features.scaled import Scaled

__all__ = ["Collisions", "Encoded", "Hashed", "PublicScaler", "Scaled", "private_scaler"]
