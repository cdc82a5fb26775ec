package file

import (
	"io/fs"
	"time"

	"go.etcd.io/bbolt"
)

// Options says how a file is opened.
type Options struct {
	Timeout time.Duration // how long to wait for the file's lock; zero or less: one attempt
	Mode    fs.FileMode   // of a file that is created, before the umask; zero: 0600
	Hooks   Hooks

	// NoSync leaves it to the operating system when to write. A crash of the process loses nothing;
	// a power cut may cost the whole file, not only its last commits. Without it every commit is on
	// disk before it returns.
	NoSync bool

	AllowNetworkFS bool // also where the file's lock cannot be trusted
}

// bolt returns bbolt's options, for a wait of at most the given time.
func (o *Options) bolt(wait time.Duration) *bbolt.Options {
	return &bbolt.Options{
		Timeout: max(wait, 1), // bbolt takes zero for ever
		// A map finds free pages fast in a file that was once large. The list of them stays in the
		// file: without it bbolt scans all pages at every open and failed commit, on a goroutine
		// whose panic cannot be recovered.
		FreelistType: bbolt.FreelistMapType,
		NoSync:       o.NoSync,
		NoStatistics: true,
	}
}

// permissions returns the mode of a new file.
func (o *Options) permissions() fs.FileMode {
	if o.Mode == 0 {
		return 0o600
	}
	return o.Mode
}
