package consulapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/lockd/lockd"
)

// entry is a key as it is in JSON (H11).
type entry struct {
	LockIndex   uint64
	Key         string
	Flags       uint64
	Value       []byte
	Session     string `json:",omitempty"`
	CreateIndex uint64
	ModifyIndex uint64
}

func newEntry(e lockd.Entry) *entry {
	if len(e.Value) == 0 {
		e.Value = nil // null in JSON
	}
	return &entry{
		e.LockIndex, e.Key, e.Flags, e.Value, e.Session.String(), e.CreateIndex, e.ModifyIndex,
	}
}

// encode writes the entry, a large value in pieces.
func (v *entry) encode(e *encoder) {
	if len(v.Value) < pieceSize/2 {
		add(e, marshal(v))
		return
	}
	shown := object{
		{"LockIndex", v.LockIndex}, {"Key", v.Key}, {"Flags", v.Flags},
		{"Value", longBytes(v.Value)},
	}
	if v.Session != "" {
		shown = append(shown, field{"Session", v.Session})
	}
	e.value(append(shown, field{"CreateIndex", v.CreateIndex}, field{"ModifyIndex", v.ModifyIndex}))
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

// entryAnswer returns the answer to a read of one key, which exists.
func (r *request) entryAnswer(e lockd.Entry) answer {
	var a answer
	if !e.Session.IsZero() {
		a.header = fenceHeader(e.Fence)
	}
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

// kvList answers with all entries that begin with the prefix.
func (h *handler) kvList(r *request) (answer, error) {
	return h.read(r, lockd.PrefixScope(r.rest), func(state *lockd.Snapshot) answer {
		entries := entriesOf(state, r.rest)
		if entries.isEmpty() {
			return answer{status: http.StatusNotFound} // H12
		}
		return answer{value: entries}
	})
}

// entriesOf returns a list of the entries that begin with the prefix.
func entriesOf(keys keyReader, prefix string) list[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range keys.Prefix(prefix) {
			if !yield(newEntry(e)) {
				return
			}
		}
	}
}

// kvKeys answers with the keys alone, folded at the separator if there is one (H10).
func (h *handler) kvKeys(r *request) (answer, error) {
	separator := r.query.Get("separator")
	if !r.has("separator") {
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
		return 0, mistake("%v", err)
	}
	return n, nil
}

func (h *handler) kvPut(r *request) (answer, error) {
	if err := r.parseBlocking(); err != nil { // bad parameters are refused here too
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
