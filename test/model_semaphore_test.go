package lockd_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/lockd/lockd"
)

// The rules of the model for semaphores, and the operations on them.

// modelSemaphore is the content of a semaphore's key. A limit of 0: there is none yet.
type modelSemaphore struct {
	key     string
	limit   int
	holders []string
}

// semaphoreOf is the key of the semaphore that a contender key belongs to, if it belongs to one.
func semaphoreOf(key string) string { return path.Dir(key) + "/.lock" }

func contenderOf(semaphore string, s *modelSession) string {
	return path.Dir(semaphore) + "/" + s.info.ID.String()
}

func (m *model) semaphore(key string) (modelSemaphore, error) {
	sem := modelSemaphore{key: key}
	value := m.keys[key].Value
	if len(value) == 0 {
		return sem, nil
	}
	var text struct {
		Limit   int
		Holders any
	}
	if json.Unmarshal(value, &text) != nil || text.Limit < 1 {
		return sem, lockd.ErrConflict
	}
	sem.limit = text.Limit
	switch holders := text.Holders.(type) {
	case map[string]any:
		sem.holders = slices.Collect(maps.Keys(holders))
	case []any:
		for _, holder := range holders {
			sem.holders = append(sem.holders, holder.(string))
		}
	}
	slices.Sort(sem.holders)
	return sem, nil
}

// begin makes a semaphore with the limit that a call names, if there is none yet.
func (s *modelSemaphore) begin(limit int) error {
	if s.limit == 0 {
		s.limit = limit
	}
	if s.limit == 0 {
		return lockd.ErrConflict
	}
	return nil
}

// holds reports whether the session, by its ID's text, is named and has its contender key.
func (m *model) holds(sem modelSemaphore, id string) bool {
	key := path.Dir(sem.key) + "/" + id
	return slices.Contains(sem.holders, id) && m.keys[key].Session.String() == id
}

// losesSlot reports whether the key, whose lock was just lost, is a holder's contender key.
func (m *model) losesSlot(key string) bool {
	sem, err := m.semaphore(semaphoreOf(key))
	return err == nil && slices.Contains(sem.holders, path.Base(key))
}

// findLost restores what a restart forgets: each delay of a contender key stands for a slot.
func (m *model) findLost() {
	clear(m.lost)
	for key := range m.delays {
		_, notAnID := lockd.ParseSessionID(path.Base(key))
		m.lost[key] = notAnID == nil && path.Dir(key) != "."
	}
}

// writeSemaphore leaves out the holders that hold nothing, and deletes their free contender keys.
func (tx *modelTx) writeSemaphore(sem modelSemaphore) {
	text := []string{}
	for _, id := range slices.Compact(sem.holders) {
		if tx.m.holds(sem, id) {
			text = append(text, fmt.Sprintf("%q:true", id))
			continue
		}
		key := path.Dir(sem.key) + "/" + id
		if e, ok := tx.m.keys[key]; ok && e.Session.IsZero() {
			tx.remove(key, nil)
		}
	}
	value := fmt.Sprintf(`{"Limit":%d,"Holders":{%s}}`, sem.limit, strings.Join(text, ","))
	tx.put(sem.key, []byte(value), officialFlags)
}

func (tx *modelTx) tryAcquire(s *modelSession, key string, limit int) (*modelLock, error) {
	if tx.m.session(s.info.ID) == nil {
		return nil, ended(s)
	}
	lock, obstacle, err := tx.acquireSlot(s, key, limit)
	if err == nil && obstacle != nil {
		tx.m.nameHolder(obstacle, s)
		err = obstacle
	}
	return lock, err
}

// nameHolder adds the holder that has had its slot for longest to a refusal that all are taken.
func (m *model) nameHolder(refusal *lockd.LockedError, s *modelSession) {
	sem, _ := m.semaphore(refusal.Key)
	if refusal.Obstacle != lockd.ObstacleSlots {
		return
	}
	longest := ""
	for _, id := range sem.holders { // in order
		own := path.Dir(refusal.Key) + "/" + id
		if m.holds(sem, id) && (longest == "" || m.keys[own].Fence < m.keys[longest].Fence) {
			longest = own
		}
	}
	if longest == "" {
		return
	}
	var held *lockd.LockedError
	_ = errors.As(m.obstructed(s.info.ID, longest, lockd.Exclusive), &held)
	refusal.Holder, refusal.HolderName, refusal.Own = held.Holder, held.HolderName, held.Own
	refusal.Fence, refusal.Since, refusal.Held = held.Fence, held.Since, held.Held
}

// acquireSlot returns a slot, or the obstacle to it, which passes, or an error.
func (tx *modelTx) acquireSlot(
	s *modelSession, key string, limit int,
) (*modelLock, *lockd.LockedError, error) {
	sem, err := tx.m.semaphore(key)
	other := sem.limit != 0 && limit != 0 && sem.limit != limit
	if err != nil || other || sem.begin(limit) != nil || tx.m.awaits(key, s, lockd.Exclusive) {
		return nil, nil, lockd.ErrConflict
	}
	obstacle, err := tx.m.obstacle(s, sem)
	if err != nil || obstacle != nil {
		return nil, obstacle, err
	}
	if tx.m.turn(key) != nil && !tx.m.holds(sem, s.info.ID.String()) {
		return nil, &lockd.LockedError{
			Key: key, Obstacle: lockd.ObstacleQueue, Waiters: tx.m.waiters(key), Limit: sem.limit,
		}, nil
	}
	return tx.holdSlot(s, sem), nil, nil
}

// obstacle returns what keeps the session from a slot, apart from the queue.
func (m *model) obstacle(s *modelSession, sem modelSemaphore) (*lockd.LockedError, error) {
	own := contenderOf(sem.key, s)
	if err := m.delayed(own, lockd.Exclusive); err != nil {
		return err.(*lockd.LockedError), nil
	}
	if m.keys[own].Session != s.info.ID {
		if err := m.obstructed(s.info.ID, own, lockd.Exclusive); err != nil {
			return nil, err
		}
	} else if m.handles[own] != nil {
		return nil, lockd.ErrConflict
	} else if m.holds(sem, s.info.ID.String()) {
		return nil, nil
	}
	taken := 0
	for _, id := range slices.Compact(sem.holders) {
		if m.holds(sem, id) {
			taken++
		}
	}
	refusal := &lockd.LockedError{
		Key: sem.key, Obstacle: lockd.ObstacleSlots, Waiters: m.waiters(sem.key), Limit: sem.limit,
	}
	for key, lost := range m.lost {
		if !lost || semaphoreOf(key) != sem.key || !m.now.Before(m.delays[key].until) {
			continue
		}
		taken++
		if until := m.delays[key].until; refusal.Until.IsZero() || until.Before(refusal.Until) {
			refusal.Until, refusal.Remaining = until, until.Sub(m.now)
		}
	}
	if taken < sem.limit {
		return nil, nil
	}
	return refusal, nil
}

func (tx *modelTx) holdSlot(s *modelSession, sem modelSemaphore) *modelLock {
	own := contenderOf(sem.key, s)
	had := tx.m.holds(sem, s.info.ID.String())
	if !had {
		value := bytes.Clone(tx.m.keys[own].Value)
		if value == nil {
			value = []byte{}
		}
		if tx.m.keys[own].Session == s.info.ID && tx.causes[own] == nil {
			tx.causes[own] = oneOf{lockd.ErrUnlocked} // the contender's grant is over
		}
		tx.grant(own, s, &lockd.LockOptions{Value: value, Flags: officialFlags})
		sem.holders = slices.Sorted(slices.Values(append(sem.holders, s.info.ID.String())))
		tx.writeSemaphore(sem)
	}
	lock := &modelLock{session: s, grant: tx.m.keys[own].Sequencer(), slot: true, had: had}
	tx.m.handles[own] = lock
	return lock
}

// serveSlot returns the slot of the first waiter, if there is a slot for it.
func (tx *modelTx) serveSlot(w *modelWaiter) []*modelLock {
	sem, err := tx.m.semaphore(w.keys[0])
	if err == nil {
		err = sem.begin(w.limit)
	}
	var obstacle *lockd.LockedError
	if err == nil {
		obstacle, err = tx.m.obstacle(w.session, sem)
	}
	if w.session.due(tx.m.now) { // its call is neither served nor refused: it ends with the session
		if err == nil && obstacle == nil {
			tx.m.counts["due and not granted"]++
		}
		return nil
	}
	if err != nil {
		tx.dismiss(w, err)
		return nil
	}
	if obstacle != nil {
		return nil
	}
	return []*modelLock{tx.holdSlot(w.session, sem)}
}

// leaveSlot gives back the slot with the contender key.
func (tx *modelTx) leaveSlot(contender lockd.Entry) {
	tx.remove(contender.Key, lockd.ErrUnlocked)
	sem, err := tx.m.semaphore(semaphoreOf(contender.Key))
	if err == nil && sem.limit > 0 {
		tx.writeSemaphore(sem)
	}
}

// lookAtSemaphores does what follows from a write to a key of a semaphore, by whatever operation.
func (tx *modelTx) lookAtSemaphores() {
	if !tx.wrote {
		return
	}
	touched := map[string]bool{}
	for _, keys := range []map[string]lockd.Entry{tx.before.keys, tx.m.keys} {
		for key := range keys {
			if !sameEntry(tx.before.keys[key], tx.m.keys[key]) {
				touched[semaphoreOf(key)] = true
			}
		}
	}
	for _, key := range sortedKeys(tx.m.handles) {
		lock := tx.m.handles[key]
		if lock == nil || !lock.slot || !touched[semaphoreOf(key)] {
			continue
		}
		sem, err := tx.m.semaphore(semaphoreOf(key))
		switch {
		case err != nil || sem.limit == 0:
			tx.remove(key, lockd.ErrKeyDeleted)
		case !tx.m.holds(sem, path.Base(key)):
			tx.remove(key, lockd.ErrUnlocked)
		}
	}
	for _, key := range sortedKeys(touched) {
		tx.serveContenders(key)
	}
}

func (tx *modelTx) serveContenders(key string) {
	if first := tx.m.first(key); first != nil && first.slot {
		tx.freed = append(tx.freed, key)
	}
}

// What the numbers of an operation mean.

// semaphore is one that is a semaphore only, or one to whose key other operations write.
func (o op) semaphore() string { return []string{"sem", "sem", "b"}[o.b%3] }

func (o op) limit() int {
	switch o.c {
	case 13, 14:
		return 0 // the semaphore's own
	case 15:
		return 3
	}
	return 2
}

// semaphoreDeed is an operation of an operator or of a foreign client.
func (w *twin) semaphoreDeed(o op) deed {
	prefix := o.semaphore()
	key := prefix + "/.lock"
	contender, id := prefix+"/"+w.id(o).String(), w.id(o)
	switch o.kind {
	case "setLimit":
		limit := 1 + o.c%3
		return deed{
			call: func() (any, error) { return nil, w.db.SetLimit(prefix, limit) },
			rule: func(tx *modelTx) (any, error) { return nil, tx.setLimit(key, limit) },
		}
	case "names":
		value, flags := w.rewritten(o, key), o.foreignFlags()
		return deed{
			call: func() (any, error) {
				return w.db.Put(key, value, &lockd.PutOptions{Flags: flags})
			},
			rule: func(tx *modelTx) (any, error) { return tx.put(key, value, flags), nil },
		}
	case "contend": // as the official client does before it looks for a slot
		if id.IsZero() {
			return deed{}
		}
		opts := o.inMode(nil)
		return deed{
			call: func() (entry any, err error) {
				err = w.db.Update(func(tx *lockd.Txn) (err error) {
					entry, err = tx.Lock(contender, id, opts)
					return err
				})
				return entry, err
			},
			rule: func(tx *modelTx) (any, error) { return tx.lock(contender, id, opts) },
		}
	}
	if id.IsZero() {
		return deed{}
	}
	if o.c%2 == 0 {
		return deed{
			call: func() (any, error) { return w.db.Delete(contender) },
			rule: func(tx *modelTx) (any, error) { return tx.remove(contender, nil), nil },
		}
	}
	fence := w.m.keys[contender].Fence
	return deed{
		call: func() (any, error) { return nil, w.db.ForceUnlock(contender, fence, "in a test") },
		rule: func(tx *modelTx) (any, error) { return nil, tx.forceUnlock(contender, fence) },
	}
}

func (o op) foreignFlags() uint64 { return []uint64{officialFlags, 0}[o.d%2] }

// rewritten is what another client writes to the key of a semaphore: its holders, with one more or
// one less, in one form or the other, or something else.
func (w *twin) rewritten(o op, key string) []byte {
	sem, err := w.m.semaphore(key)
	if err != nil || sem.limit == 0 {
		sem.limit = 2
	}
	if id := w.id(o).String(); slices.Contains(sem.holders, id) {
		at := slices.Index(sem.holders, id)
		sem.holders = slices.Delete(sem.holders, at, at+1)
	} else if id != "" {
		sem.holders = append(sem.holders, id)
	}
	switch {
	case o.d == 15:
		return []byte("something else")
	case o.d%2 == 1:
		text, _ := json.Marshal(sem.holders)
		return fmt.Appendf(nil, `{"Limit": %d, "Holders": %s}`, sem.limit, text)
	}
	holders := map[string]bool{}
	for _, id := range sem.holders {
		holders[id] = true
	}
	text, _ := json.Marshal(official{sem.limit, holders})
	return text
}

func (tx *modelTx) setLimit(key string, limit int) error {
	sem, err := tx.m.semaphore(key)
	if err != nil || sem.limit == limit {
		return err
	}
	sem.limit = limit
	tx.writeSemaphore(sem)
	return nil
}
