package file

import "fmt"

// checkPlace refuses a path on a file system on which the lock, or the mapped memory, cannot be
// trusted, as far as that can be recognised: for an existing file its own path, and for one to be
// created the path of its folder. What cannot be asked is let through; to open it tells more.
func checkPlace(path string, o Options) error {
	if o.AllowNetworkFS {
		return nil
	}
	find := networkFS
	if o.Hooks.NetworkFS != nil {
		find = o.Hooks.NetworkFS
	}
	if name := find(path); name != "" {
		return fmt.Errorf("%w: it is on %s, where the lock on a file cannot be trusted to keep "+
			"others out; put it on a local disk, or set Options.AllowNetworkFS", ErrInvalid, name)
	}
	return nil
}
