package file

import (
	"fmt"
	"os"
	"time"
)

// holder is the process that has a file's lock.
type holder struct {
	pid   int
	name  string    // empty: unknown
	since time.Time // when the process began; zero: unknown
}

// by says who has the file open, as far as the system tells.
func by(path string) string {
	h, ok := findHolder(path)
	switch {
	case !ok:
		return ""
	case h.pid == os.Getpid():
		return fmt.Sprintf(" by this process, %d", h.pid)
	}
	text := fmt.Sprintf(" by process %d", h.pid)
	if h.name != "" {
		text += fmt.Sprintf(" (%s)", h.name)
	}
	if !h.since.IsZero() {
		text += ", running since " + h.since.UTC().Format(time.RFC3339)
	}
	return text
}
