package lockclient

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// obstacle is the error that sessions hold the lock, or all slots.
type obstacle struct {
	what    string
	holders []string
}

// Error returns the text, with the sessions' IDs.
func (o *obstacle) Error() string {
	parties := make([]Party, len(o.holders))
	for i, id := range o.holders {
		parties[i] = Party{Session: id}
	}
	return o.by(parties)
}

// maxNamed is how many sessions an error names.
const maxNamed = 3

func (o *obstacle) by(parties []Party) string {
	var names []string
	for _, p := range parties[:min(len(parties), maxNamed)] {
		names = append(names, p.String())
	}
	text := o.what + " by " + strings.Join(names, ", ")
	if more := len(parties) - maxNamed; more > 0 {
		text += fmt.Sprintf(", and %d more", more)
	}
	return text
}

// explain replaces an error about a lock or a slot that cannot be taken by one with what the server
// now tells of it: which sessions hold it, for how long they have held it, until when it is
// delayed. It returns any other error unchanged. If the server does not answer within a second
// after ctx has ended, the text stays that of err.
func (c *Client) explain(ctx context.Context, key string, err error) error {
	if !inTheWay(err) {
		return err
	}
	longer, cancel := lingering(ctx)
	defer cancel()
	var info LockInfo
	if key != "" {
		locks, _ := c.ownLocks(longer, key) // without them the error says what is known
		at := slices.IndexFunc(locks, func(l LockInfo) bool { return l.Key == key })
		if at >= 0 {
			info = locks[at]
		}
	}
	o, isHeld := errors.AsType[*obstacle](err)
	switch {
	case isHeld && info.Session != "", len(info.Holders) > 0 && !errors.Is(err, ErrDelayed):
		return errors.New(info.String())
	case isHeld:
		return errors.New(o.by(c.parties(longer, o.holders)))
	case errors.Is(err, ErrDelayed) && !info.DelayedUntil.IsZero():
		return fmt.Errorf("%w until %s", err, info.DelayedUntil.UTC().Format(time.RFC3339))
	}
	return err
}

// parties describes the sessions, the first maxNamed of them by name and node.
func (c *Client) parties(ctx context.Context, ids []string) []Party {
	parties := make([]Party, len(ids))
	for i, id := range ids {
		parties[i] = Party{Session: id}
		if i >= maxNamed {
			continue
		}
		s, _, err := c.Session().Info(id, reading(ctx, Wait{}))
		if err == nil && s != nil {
			parties[i] = Party{s.ID, s.Name, s.Node}
		}
	}
	return parties
}
