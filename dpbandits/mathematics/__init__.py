"""Links, ellipsoids, estimators and designs: functions of arrays that policies call."""
