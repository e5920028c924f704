"""etcd v3 behind the store's interface, for several API servers on one store."""
