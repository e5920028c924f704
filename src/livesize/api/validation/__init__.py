"""Says what is wrong with an object, field by field, in Kubernetes' words; [] means nothing is."""
