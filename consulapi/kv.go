package consulapi

import (
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/lockd/lockd"
)

// entry is a key as it is in JSON (H11).
type entry struct {
	entryHead
	Value []byte
	entryTail
}

// entryHead is what stands before the value.
type entryHead struct {
	LockIndex uint64
	Key       string
	Flags     uint64
}

// entryTail is what stands behind the value.
type entryTail struct {
	Session     string `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

func newEntry(e lockd.Entry) *entry {
	if len(e.Value) == 0 {
		e.Value = nil // which is null
	}
	return &entry{
		entryHead{e.LockIndex, e.Key, e.Flags}, e.Value,
		entryTail{e.Session.String(), e.CreateIndex, e.ModifyIndex},
	}
}

// encode writes the entry, a large value in pieces.
func (v *entry) encode(e *encoder) {
	if len(v.Value) < pieceSize/2 {
		add(e, marshal(v))
		return
	}
	e.raw("{")
	e.members(v.entryHead)
	e.raw(`,"Value":`)
	e.bytes(v.Value)
	e.raw(",")
	e.members(v.entryTail)
	e.raw("}")
}

// maxValueHelp is where Consul's text on too large a value points.
const maxValueHelp = "https://www.consul.io/docs/agent/options.html#kv_max_value_size"

var errNoKey = badRequest("Missing key name") // H7

func (h *handler) kvRoutes() map[string][]method {
	return map[string][]method{
		"kv/": {
			{http.MethodGet, h.kvGet},
			{http.MethodPut, h.kvPut},
			{http.MethodDelete, h.kvDelete},
		},
	}
}

func (h *handler) kvGet(r *request) (answer, error) {
	switch {
	case r.has("keys"):
		return h.kvKeys(r)
	case r.has("recurse"):
		return h.kvList(r)
	case r.rest == "":
		return answer{}, errNoKey
	}
	if r.index == 0 { // a key that is there is read without a Snapshot
		if e, exists := h.db.Get(r.rest); exists {
			a := r.entryAnswer(e)
			a.index = e.ModifyIndex
			return a.asRead(), nil
		}
	}
	return h.read(r, lockd.KeyScope(r.rest), func(state *lockd.Snapshot) answer {
		e, exists := state.Get(r.rest)
		if !exists {
			return answer{status: http.StatusNotFound}
		}
		return r.entryAnswer(e)
	})
}

// entryAnswer is the answer to a read of one key that is there.
func (r *request) entryAnswer(e lockd.Entry) answer {
	a := answer{header: fenceHeader(e)}
	if !r.has("raw") {
		a.value = listOf(newEntry(e))
		return a
	}
	if a.header == nil {
		a.header = make(http.Header)
	}
	a.header.Set("X-Content-Type-Options", "nosniff") // H13
	a.header.Set("Content-Security-Policy", "sandbox")
	a.body, a.contentType = e.Value, "text/plain"
	return a
}

// fenceHeader tells the fence of a key's lock, nothing if the key is free. The header is lockd's
// own: Consul's JSON of a key has no member for it (X1).
func fenceHeader(e lockd.Entry) http.Header {
	if e.Session.IsZero() {
		return nil
	}
	return http.Header{"X-Lockd-Fence": {strconv.FormatUint(e.Fence, 10)}}
}

// kvList answers with all entries that begin with the prefix.
func (h *handler) kvList(r *request) (answer, error) {
	return h.read(r, lockd.PrefixScope(r.rest), func(state *lockd.Snapshot) answer {
		entries := list[*entry](func(yield func(*entry) bool) {
			for _, e := range state.Prefix(r.rest) {
				if !yield(newEntry(e)) {
					return
				}
			}
		})
		if entries.isEmpty() {
			return answer{status: http.StatusNotFound} // H12
		}
		return answer{value: entries}
	})
}

// kvKeys answers with the keys alone, folded at the separator if there is one (H10).
func (h *handler) kvKeys(r *request) (answer, error) {
	separator := r.query.Get("separator")
	if separator == "" {
		separator = r.query.Get("seperator") // as older clients spell it
	}
	return h.read(r, lockd.PrefixScope(r.rest), func(state *lockd.Snapshot) answer {
		keys := list[string](state.Keys(r.rest, separator))
		if r.rest != "" && keys.isEmpty() {
			return answer{status: http.StatusNotFound} // H12
		}
		return answer{value: keys}
	})
}

// conflicting refuses a query that names more than one of the parameters (H8).
func (r *request) conflicting(names ...string) error {
	found := 0
	for _, name := range names {
		if r.has(name) {
			found++
		}
	}
	if found < 2 {
		return nil
	}
	return refuse(http.StatusBadRequest, "Conflicting flags: %s", r.query.Encode())
}

// number parses a parameter that must be a decimal number.
func (r *request) number(name string) (uint64, error) {
	n, err := strconv.ParseUint(r.query.Get(name), 10, 64)
	if err != nil {
		return 0, refuse(http.StatusInternalServerError, "%v", err)
	}
	return n, nil
}

func (h *handler) kvPut(r *request) (answer, error) {
	if err := r.parseBlocking(); err != nil { // a bad one is refused here too
		return answer{}, err
	}
	if r.rest == "" {
		return answer{}, errNoKey
	}
	if err := r.conflicting("cas", "acquire", "release"); err != nil {
		return answer{}, err
	}
	var flags, index uint64
	var err error
	if r.has("flags") {
		if flags, err = r.number("flags"); err != nil {
			return answer{}, err
		}
	}
	if r.has("cas") {
		if index, err = r.number("cas"); err != nil {
			return answer{}, err
		}
	}
	value, err := r.readBody(h.opts.MaxValueSize, maxValueHelp)
	if err != nil {
		return answer{}, err
	}
	switch {
	case r.has("cas"):
		_, err = h.db.CompareAndSwap(r.rest, index, value, &lockd.PutOptions{Flags: flags})
		return done(err, lockd.ErrConflict)
	case r.has("acquire"):
		return h.kvAcquire(r, value, flags)
	case r.has("release"):
		return h.kvRelease(r, value, flags)
	}
	_, err = h.db.Put(r.rest, value, &lockd.PutOptions{Flags: flags})
	return done(err, nil)
}

// refusalHeader is lockd's own, and says why a lock is refused: a false does not tell a lock that
// is held from one that is delayed (X25).
const refusalHeader = "X-Lockd-Refusal"

func (h *handler) kvAcquire(r *request, value []byte, flags uint64) (answer, error) {
	given := r.query.Get("acquire")
	var e lockd.Entry
	err := h.db.Update(func(tx *lockd.Txn) (err error) {
		e, err = acquire(tx, r.rest, given, value, flags)
		return err
	})
	if locked, is := errors.AsType[*lockd.LockedError](err); is {
		refused := ok(false) // K17, K18
		refused.header = http.Header{refusalHeader: {locked.Error()}}
		return refused, nil
	}
	a, err := applied(err)
	a.header = fenceHeader(e)
	return a, err
}

func (h *handler) kvRelease(r *request, value []byte, flags uint64) (answer, error) {
	given := r.query.Get("release")
	err := h.db.Update(func(tx *lockd.Txn) error {
		_, err := release(tx, r.rest, given, value, flags)
		return err
	})
	if errors.Is(err, lockd.ErrNotHeld) {
		return ok(false), nil // K22, K23, K25
	}
	return applied(err)
}

// applied is the answer to a write that either succeeded or is an error; that has a text of its
// own (H9).
func applied(err error) (answer, error) {
	if f, is := errors.AsType[*failure](err); is {
		return answer{}, &failure{code: f.code, err: f.err, text: "raft apply failed: " + f.text}
	}
	return done(err, nil)
}

// done is the answer to a write: false if it was refused with the one error that is no failure.
func done(err, refused error) (answer, error) {
	if err != nil && (refused == nil || !errors.Is(err, refused)) {
		return answer{}, err
	}
	return ok(err == nil), nil
}

// sessionID returns the ID that was given, in any case (X20), and the zero one for the empty text.
// For a text that is no ID it returns one that no session ever has, so that the rules meet it
// where they meet an unknown session.
func sessionID(given string) (id lockd.SessionID) {
	if given == "" {
		return id
	}
	if id, err := lockd.ParseSessionID(given); err == nil && !id.IsZero() {
		return id
	}
	for i := range id {
		id[i] = 0xff
	}
	return id
}

// acquire takes the key's lock as Consul does, value and flags included (K13 to K20, K35).
func acquire(
	tx *lockd.Txn, key, given string, value []byte, flags uint64,
) (lockd.Entry, error) {
	if value == nil {
		value = []byte{} // it is written all the same
	}
	e, err := tx.Lock(key, sessionID(given), &lockd.LockOptions{Value: value, Flags: flags})
	switch {
	case errors.Is(err, lockd.ErrNoSession):
		return e, reword(err, "invalid session %q", given)
	case errors.Is(err, lockd.ErrInvalid) && given == "":
		return e, missingSession(err)
	}
	return e, err
}

// release frees the key's lock and, unlike Txn.Unlock, replaces value and flags (K21 to K25).
func release(
	tx *lockd.Txn, key, given string, value []byte, flags uint64,
) (lockd.Entry, error) {
	if given == "" {
		_, err := tx.Unlock(key, lockd.SessionID{})
		return lockd.Entry{}, missingSession(err)
	}
	if e, err := tx.Unlock(key, sessionID(given)); err != nil {
		return e, err
	}
	return tx.Put(key, value, &lockd.PutOptions{Flags: flags})
}

// missingSession is what Consul says to a client that names no session (K19, K24).
func missingSession(err error) error {
	return &failure{
		code: http.StatusInternalServerError, err: err, text: "missing session",
	}
}

func (h *handler) kvDelete(r *request) (answer, error) {
	if err := r.parseBlocking(); err != nil {
		return answer{}, err
	}
	if err := r.conflicting("recurse", "cas"); err != nil {
		return answer{}, err
	}
	if r.has("recurse") {
		return h.kvDeleteTree(r)
	}
	if r.rest == "" {
		return answer{}, errNoKey
	}
	if r.has("cas") {
		index, err := r.number("cas")
		if err != nil {
			return answer{}, err
		}
		_, err = h.db.CompareAndDelete(r.rest, index)
		return done(err, lockd.ErrConflict)
	}
	_, err := h.db.Delete(r.rest)
	return done(err, nil)
}

func (h *handler) kvDeleteTree(r *request) (answer, error) {
	text := r.query.Get("recurse")
	if recurse, err := strconv.ParseBool(strings.ToLower(text)); err == nil && !recurse { // X17
		return answer{}, badRequest("recurse=%s deletes every key with the prefix all the same: "+
			"leave it out to delete one key", text)
	}
	if r.rest == "" {
		_, err := h.db.DeleteAll()
		return done(err, nil)
	}
	_, err := h.db.DeletePrefix(r.rest)
	return done(err, nil)
}
