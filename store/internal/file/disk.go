package file

// disk has one goroutine at a time write to the file and sync it: a commit to the log, or one of
// bbolt's. The system tells of a write that has failed only once, to the next sync, whoever's it
// is. So with two at a time one could take the other's error, and the other one count as durable
// what is not on disk. It is a channel, not a mutex, so that a test can tell who waits for it.
type disk struct{ busy chan struct{} }

func newDisk() *disk { return &disk{make(chan struct{}, 1)} }

// alone calls write, which syncs all that it has written, when no other goroutine writes.
func (d *disk) alone(write func() error) error {
	d.busy <- struct{}{}
	defer func() { <-d.busy }()
	return write()
}
