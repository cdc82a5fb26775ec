package consulapi

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/lockd/lockd"
)

// Options configures a Handler or a Transport. A nil *Options and the zero value mean the
// defaults. It is read once and not kept.
type Options struct {
	// MinTTL is the shortest TTL that a session may have, like Consul's session_ttl_min (S13). The
	// default is 10 s, the least is lockd.MinTTL, the most 24 h.
	MinTTL time.Duration

	// GraceTTLs is for how many more TTLs a session lives if it is not renewed within the first. It
	// is for clients whose renewals come over a network. The default is 0, so that a TTL is
	// enforced exactly; with 1 a session lives as long as in Consul (S26). The most is 10.
	GraceTTLs int

	// Datacenter is the name that ?dc= may have. The default is "dc1".
	Datacenter string

	// Node is the node of the sessions that name none. It has the check serfHealth. The default is
	// the database's node, lockd.Options.Node; any other stands beside that node in the catalog.
	Node string

	// NodeID is the ID of Node, a UUID. The default is the ID that the node has in the catalog,
	// else a random one.
	NodeID string

	// MaxValueSize is how many bytes a value, and any other body except a snapshot, may have (H15,
	// T4). The default is 512 KiB, the most is lockd.MaxValueSize.
	MaxValueSize int

	// MaxSnapshotSize is how many bytes a snapshot to restore may have, both as sent and unpacked.
	// The default is 1 GiB.
	MaxSnapshotSize int64

	// MaxTxnOps is how many operations a transaction may have (T4). The default is 64.
	MaxTxnOps int

	// MaxBlocked is how many queries may be blocked at once for as long as they ask. Any further
	// query is blocked for little more than a second at most, and then answered as if its wait had
	// ended (B3). The default is 10,000.
	MaxBlocked int

	// Logger is told of panics. A panic ends only the request that it happened in. The default is
	// slog.Default.
	Logger *slog.Logger
}

const (
	defaultMinTTL       = 10 * time.Second
	maxTTL              = 24 * time.Hour
	maxGraceTTLs        = 10
	defaultDatacenter   = "dc1"
	defaultMaxValueSize = 512 << 10
	defaultMaxSnapshot  = 1 << 30
	defaultMaxTxnOps    = 64
	defaultMaxBlocked   = 10_000
)

// complete returns a copy in which every default except NodeID's is filled in, or an error that
// names every field that is out of its bounds.
func (o *Options) complete(db *lockd.DB) (Options, error) {
	if o == nil {
		o = &Options{}
	}
	var faults []error
	invalid := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: Options."+format,
			append([]any{lockd.ErrInvalid}, args...)...))
	}
	if o.MinTTL != 0 && (o.MinTTL < lockd.MinTTL || o.MinTTL > maxTTL) {
		invalid("MinTTL is %v, not between %v and %v", o.MinTTL, lockd.MinTTL, maxTTL)
	}
	if o.GraceTTLs < 0 || o.GraceTTLs > maxGraceTTLs {
		invalid("GraceTTLs is %d, not between 0 and %d", o.GraceTTLs, maxGraceTTLs)
	}
	nodeID, err := lockd.ParseSessionID(o.NodeID) // which is a UUID too
	if err != nil && o.NodeID != "" {
		invalid("NodeID is %q, not a UUID", o.NodeID)
	}
	if o.MaxValueSize < 0 || o.MaxValueSize > lockd.MaxValueSize {
		invalid("MaxValueSize is %d, not between 0 and %d", o.MaxValueSize, lockd.MaxValueSize)
	}
	if o.MaxSnapshotSize < 0 {
		invalid("MaxSnapshotSize is %d, below 0", o.MaxSnapshotSize)
	}
	if o.MaxTxnOps < 0 {
		invalid("MaxTxnOps is %d, below 0", o.MaxTxnOps)
	}
	if o.MaxBlocked < 0 {
		invalid("MaxBlocked is %d, below 0", o.MaxBlocked)
	}
	return Options{
		MinTTL:          cmp.Or(o.MinTTL, defaultMinTTL),
		GraceTTLs:       o.GraceTTLs,
		Datacenter:      cmp.Or(o.Datacenter, defaultDatacenter),
		Node:            cmp.Or(o.Node, db.Node()),
		NodeID:          nodeID.String(), // in its one form (N5)
		MaxValueSize:    cmp.Or(o.MaxValueSize, defaultMaxValueSize),
		MaxSnapshotSize: cmp.Or(o.MaxSnapshotSize, defaultMaxSnapshot),
		MaxTxnOps:       cmp.Or(o.MaxTxnOps, defaultMaxTxnOps),
		MaxBlocked:      cmp.Or(o.MaxBlocked, defaultMaxBlocked),
		Logger:          cmp.Or(o.Logger, slog.Default()),
	}, errors.Join(faults...)
}
