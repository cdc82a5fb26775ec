package hook

import "github.com/benbjohnson/clock"

// Unpaced is a clock whose database, on a file, commits at once: the call that commits does not let
// those run first who were answered by the commit before. It is there to measure what that is
// worth, and what it costs in a busy program. The zero value is not usable: Clock has to be set.
type Unpaced struct{ clock.Clock }
