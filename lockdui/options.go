package lockdui

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockd/lockd"
)

// Options configures a Handler. A nil *Options and the zero value mean the defaults. It is read
// once and not kept.
type Options struct {
	// Actions says what a person may do with the pages. The default is ShowOnly.
	Actions Actions

	// Hosts says for which host names the handler takes requests. The default is LocalHosts.
	Hosts Hosts

	// Now returns the time of the database's clock, if lockd.Options.Clock is not the real one. The
	// default is time.Now.
	Now func() time.Time

	// Logger is told of each action and each panic. A panic ends only the request that it happened
	// in. The default is slog.Default().
	Logger *slog.Logger
}

// Actions says what a person may do with the pages.
type Actions uint8

// The actions.
const (
	// ShowOnly shows, and changes nothing.
	ShowOnly Actions = iota
	// ForceUnlockAndEnd also takes a lock from its holder, as DB.ForceUnlock does, and ends a
	// session, as DB.EndSession does.
	ForceUnlockAndEnd
)

// Hosts says for which host names a handler takes requests. A stranger could let a host name of
// their own point to this machine; a page that is loaded by that name would then have the same
// origin as the handler.
type Hosts uint8

// The rules for hosts.
const (
	// LocalHosts takes requests for an IP address, localhost, a name that ends in .localhost, and
	// the machine's own name.
	LocalHosts Hosts = iota
	// AnyHost takes requests for every name. It is for a server that itself keeps strangers out, by
	// a token, a login or a certificate.
	AnyHost
)

// complete returns a copy in which every default is filled in, or an error that names every field
// that is out of its bounds.
func (o *Options) complete() (Options, error) {
	if o == nil {
		o = &Options{}
	}
	var faults []error
	if o.Actions > ForceUnlockAndEnd {
		faults = append(faults, fmt.Errorf("%w: Options.Actions is %d, not between 0 and %d",
			lockd.ErrInvalid, o.Actions, ForceUnlockAndEnd))
	}
	if o.Hosts > AnyHost {
		faults = append(faults, fmt.Errorf("%w: Options.Hosts is %d, not between 0 and %d",
			lockd.ErrInvalid, o.Hosts, AnyHost))
	}
	complete := *o
	complete.Logger = cmp.Or(o.Logger, slog.Default())
	if o.Now == nil {
		complete.Now = time.Now
	}
	return complete, errors.Join(faults...)
}
