"""Private algorithms exactly as their papers print them: not private as claimed, and for comparisons only.

=================== ==================================================================================================
``base``            what they have in common: a warning, no ``privacy``, no ledger
``joint_dp_glm``    Algorithm 2 of Sarmasarkar (2026): ``JointDPGLM(parameters="published")``
``shuffle_glm``     Algorithm 1 of Sarmasarkar (2026): ``ShuffleGLM(parameters="published")``
``dphdb``           Algorithm 3 of Han et al. (2022): ``DPHDB(parameters="published")``
=================== ==================================================================================================

Each file says where the published claim fails, and which sentence of its paper it read how where two differ.
"""
