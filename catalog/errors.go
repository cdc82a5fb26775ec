package catalog

import "github.com/lockd/lockd/internal/engine"

// Errors of a call that names something which the catalog does not have. NewSession returns them
// too, for what its options name.
var (
	// ErrNoNode is returned when a node is not in the catalog.
	ErrNoNode = engine.ErrNoNode

	// ErrNoService is returned when a service is not in the catalog.
	ErrNoService = engine.ErrNoService

	// ErrNoCheck is returned when a check is not in the catalog.
	ErrNoCheck = engine.ErrNoCheck
)

// Causes of the end of a session: what errors.Is finds in Session.Err, Lock.Err and the cause of a
// Lock.Context.
var (
	// ErrNodeGone is the cause when a session's node was removed or renamed. The text has its name.
	ErrNodeGone = engine.ErrNodeGone

	// ErrCheckGone is the cause when a check of a session, or its service, was removed. The text
	// has the ID of the check.
	ErrCheckGone = engine.ErrCheckGone

	// ErrCheckCritical is the cause when a check of a session became critical. NewSession also
	// returns it, for a check that is critical already. The text has the ID of the check.
	ErrCheckCritical = engine.ErrCheckCritical
)
