"""Virtual machines through a private libvirtd: QEMU guests that are resized while they run."""
