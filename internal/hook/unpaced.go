package hook

import "github.com/benbjohnson/clock"

// Unpaced is a clock whose database, on a file, commits at once: whoever commits yields to nobody
// who might join. It is there to measure what the yields are worth, and what they cost in a busy
// program. The zero value is not usable: Clock has to be set.
type Unpaced struct{ clock.Clock }
