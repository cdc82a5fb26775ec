package hook

import "github.com/benbjohnson/clock"

// Unpaced is a clock whose database, on a file, commits at once: a commit does not wait for the
// callers that the one before has answered. It is there to measure what that wait is worth, and
// what it costs in a busy program. The zero value is not usable: Clock has to be set.
type Unpaced struct{ clock.Clock }
