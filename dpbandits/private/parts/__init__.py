"""What private policies are made of: which file answers which question.

* What does a round tell? ``records`` (secant and tangent records of generalized linear models), ``slates``
  (sums of several), ``groups``.
* How is a choice made? ``posterior_rule``; what each policy's own rule is stands in its file.
* What follows from a release? ``one_pass`` and ``one_pass_batches`` (records of both trust models), ``linear`` and
  ``ridge`` (linear bandits), ``refreshed`` (persons), ``standing`` and ``arm_fits`` (public arms), ``disjoint``,
  ``block_fits``, ``block_model`` and ``block_batches`` (a parameter for each arm), ``arm_posteriors`` (arms without
  features), ``corners`` (Frank–Wolfe steps).
* What is estimated, under how much noise? ``noisy_estimate``, ``metric``.
* Does the world fit? ``progress`` (has it moved, are rewards what the model says), ``cold_start`` (can anything be
  learned, and which releases matter).
* Of one policy: ``batch_plans``, ``held_rows`` and ``half_widths`` of ShuffleGLM, ``two_designs`` and
  ``capped_calls`` of JointDPGLM, ``older_messages`` of LDPGLM, ``epochs`` of Doubling and Restarting.
"""
