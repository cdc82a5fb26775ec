package lockd_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// badInput is a call that must be refused for one of its arguments.
type badInput struct {
	name string
	call func(h *harness, s *lockd.Session) error
	want error
	text string // names the field and the rule
}

var (
	tooLong  = strings.Repeat("x", lockd.MaxKeySize+1)
	tooLarge = make([]byte, lockd.MaxValueSize+1)
)

// refuseAll fails the test unless each call is refused with its text and changes nothing, and is
// refused after Close because of the Close alone.
func refuseAll(t *testing.T, calls []badInput) {
	t.Helper()
	each(t, func(h *harness) {
		h.must(h.Update(func(tx *lockd.Txn) error {
			h.must(tx.Catalog().PutNode(catalog.Node{Name: "n"}))
			return tx.Catalog().PutCheck(catalog.Check{Node: "n", Name: "bad"})
		}))
		s := h.session(nil)
		h.put("k", "v", 0)
		h.lock(s, "held")
		before := h.Snapshot()
		for _, c := range calls {
			err := c.call(h, s)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				h.t.Errorf("%s: got %.300v, want %q", c.name, err, c.text)
			}
			var wrapped *lockd.Error
			if !errors.As(err, &wrapped) || !strings.HasPrefix(err.Error(), "lockd: ") {
				h.t.Errorf("%s: got a bare %T", c.name, err)
			}
			if got := h.Snapshot().Index(); got != before.Index() {
				h.t.Fatalf("%s: index %d after %d", c.name, got, before.Index())
			}
		}
		if s.Err() != nil || h.Waiters("k") != 0 || h.Topics() != 0 {
			h.t.Errorf("left: session %v, %d waiting, %d topics", s.Err(), h.Waiters("k"),
				h.Topics())
		}
		h.must(h.Close())
		for _, c := range calls {
			if err := c.call(h, s); !errors.Is(err, lockd.ErrClosed) ||
				errors.Is(err, lockd.ErrInvalid) {
				h.t.Errorf("%s, after Close: got %.300v, want ErrClosed", c.name, err)
			}
		}
	})
}

// keyCalls are the calls that take a key.
var keyCalls = map[string]func(h *harness, s *lockd.Session, key string) error{
	"Put": func(h *harness, _ *lockd.Session, key string) error {
		return second(h.Put(key, nil, nil))
	},
	"CompareAndSwap": func(h *harness, _ *lockd.Session, key string) error {
		return second(h.CompareAndSwap(key, 0, nil, nil))
	},
	"Delete": func(h *harness, _ *lockd.Session, key string) error {
		return second(h.Delete(key))
	},
	"CompareAndDelete": func(h *harness, _ *lockd.Session, key string) error {
		return second(h.CompareAndDelete(key, 0))
	},
	"TryLock": func(_ *harness, s *lockd.Session, key string) error {
		return second(s.TryLock(key, nil))
	},
	"Lock": func(h *harness, s *lockd.Session, key string) error {
		return second(s.Lock(h.t.Context(), key, nil))
	},
	"LockAll": func(h *harness, s *lockd.Session, key string) error {
		return second(s.LockAll(h.t.Context(), []string{"k", key}, nil))
	},
	"ForceUnlock": func(h *harness, _ *lockd.Session, key string) error {
		return h.ForceUnlock(key, 1, "")
	},
	"Txn.Lock": func(h *harness, s *lockd.Session, key string) error {
		return h.Update(func(tx *lockd.Txn) error { return second(tx.Lock(key, s.ID(), nil)) })
	},
	"Txn.Unlock": func(h *harness, s *lockd.Session, key string) error {
		return h.Update(func(tx *lockd.Txn) error { return second(tx.Unlock(key, s.ID())) })
	},
}

func TestBadInput_Keys(t *testing.T) {
	var calls []badInput
	for name, call := range keyCalls {
		for key, text := range map[string]string{
			"":      "key is empty",
			tooLong: "key has 16385 bytes, more than 16384",
		} {
			calls = append(calls, badInput{
				name, func(h *harness, s *lockd.Session) error { return call(h, s, key) },
				lockd.ErrInvalid, text,
			})
		}
	}
	refuseAll(t, append(calls, []badInput{
		{"DeletePrefix", func(h *harness, _ *lockd.Session) error {
			return second(h.DeletePrefix(""))
		}, lockd.ErrInvalid, "prefix is empty, which means every key: DeleteAll does that"},
		{"DeletePrefix", func(h *harness, _ *lockd.Session) error {
			return second(h.DeletePrefix(tooLong))
		}, lockd.ErrInvalid, "prefix has 16385 bytes, more than 16384"},
		{"LockAll of none", func(h *harness, s *lockd.Session) error {
			return second(s.LockAll(h.t.Context(), nil, nil))
		}, lockd.ErrInvalid, "no keys are named"},
		{"LockAll of one twice", func(h *harness, s *lockd.Session) error {
			return second(s.LockAll(h.t.Context(), []string{"a", "k", "b", "k"}, nil))
		}, lockd.ErrInvalid, `key "k" is named twice`},
		{"Watch ahead", func(h *harness, _ *lockd.Session) error {
			for _, err := range h.Watch(h.t.Context(), lockd.KeyScope("k"), 1_000_000) {
				return err
			}
			return nil
		}, lockd.ErrInvalid, "index 1000000 is ahead of the database"},
	}...))
}

func TestBadInput_ValuesAndLockOptions(t *testing.T) {
	const large = "has 67108865 bytes, more than 67108864"
	calls := []badInput{
		{"Put", func(h *harness, _ *lockd.Session) error {
			return second(h.Put("k", tooLarge, nil))
		}, lockd.ErrInvalid, "value " + large},
		{"CompareAndSwap", func(h *harness, _ *lockd.Session) error {
			return second(h.CompareAndSwap("new", 0, tooLarge, nil))
		}, lockd.ErrInvalid, "value " + large},
		{"Attach", func(h *harness, s *lockd.Session) error {
			return h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().Attach(s.ID(), "a", tooLarge)
			})
		}, lockd.ErrInvalid, "value " + large},
		{"Txn.Lock with a policy", func(h *harness, s *lockd.Session) error {
			return h.Update(func(tx *lockd.Txn) error {
				return second(tx.Lock("k", s.ID(), removeAfter))
			})
		}, lockd.ErrInvalid, "LockOptions.Key"},
		{"Txn.Lock with a MaxHold", func(h *harness, s *lockd.Session) error {
			return h.Update(func(tx *lockd.Txn) error {
				return second(tx.Lock("k", s.ID(), atMost5s))
			})
		}, lockd.ErrInvalid, "LockOptions.MaxHold is for Session.Lock, not for Txn.Lock"},
	}
	for text, opts := range map[string]*lockd.LockOptions{
		"LockOptions.Key is 2, not a KeyPolicy":              {Key: lockd.RemoveAfter + 1},
		"LockOptions.Mode is 2, not a LockMode":              {Mode: lockd.Shared + 1},
		"LockOptions.Value " + large:                         {Value: tooLarge},
		"LockOptions.Flags is set":                           {Flags: 1},
		"LockOptions.MaxHold is -1ns, below 0":               {MaxHold: -1},
		"LockOptions.MaxHold is 10ns, below 1ms; was a unit": {MaxHold: 10},
	} {
		calls = append(calls, []badInput{
			{"TryLock", func(_ *harness, s *lockd.Session) error {
				return second(s.TryLock("k", opts))
			}, lockd.ErrInvalid, text},
			{"Lock", func(h *harness, s *lockd.Session) error {
				return second(s.Lock(h.t.Context(), "k", opts))
			}, lockd.ErrInvalid, text},
			{"LockAll", func(h *harness, s *lockd.Session) error {
				return second(s.LockAll(h.t.Context(), []string{"k", "new"}, opts))
			}, lockd.ErrInvalid, text},
			{"Txn.Lock", func(h *harness, s *lockd.Session) error {
				return h.Update(func(tx *lockd.Txn) error {
					return second(tx.Lock("k", s.ID(), opts))
				})
			}, lockd.ErrInvalid, text},
		}...)
	}
	refuseAll(t, calls)
}

// Ensure that what is as long as a limit is taken.
func TestInput_AtTheLimits(t *testing.T) {
	inBubble(t, "", func(h *harness) {
		value, key := tooLarge[1:], tooLong[1:]
		s := h.session(&lockd.SessionOptions{
			Name: key, Meta: map[string]string{"m": strings.Repeat("v", 16<<10-1)},
		})
		h.must(second(h.Put(key, value, nil)))
		h.must(second(s.TryLock("lock",
			&lockd.LockOptions{Value: value, MaxHold: time.Millisecond})))
		prefix := key[:len(key)-len("/")-len(s.ID().String())] // a slot's key is prefix/session
		h.must(second(s.TryAcquire(prefix, 1<<20)))
		h.must(h.SetLimit(prefix, 1))
		h.must(h.Update(func(tx *lockd.Txn) error {
			return errors.Join(second(tx.Lock("txn", s.ID(), &lockd.LockOptions{Value: value})),
				tx.Catalog().Attach(s.ID(), "a", value))
		}))
		h.must(second(h.DeletePrefix(key)))
	})
}

func TestBadInput_SessionOptions(t *testing.T) {
	var calls []badInput
	for _, tt := range []struct {
		opts lockd.SessionOptions
		want error
		text string
	}{
		{lockd.SessionOptions{TTL: -1}, lockd.ErrInvalid, "SessionOptions.TTL is -1ns, below 0"},
		{lockd.SessionOptions{Meta: map[string]string{"k": strings.Repeat("v", 16<<10)}},
			lockd.ErrInvalid, "SessionOptions.Meta has 16385 bytes, more than 16384"},
		{lockd.SessionOptions{TTL: time.Minute, Grace: -1}, lockd.ErrInvalid,
			"SessionOptions.Grace is -1ns, below 0"},
		{lockd.SessionOptions{Grace: 1}, lockd.ErrInvalid, "SessionOptions.Grace is 1ns, but"},
		{lockd.SessionOptions{TTL: math.MaxInt64, Grace: 1}, lockd.ErrInvalid,
			"SessionOptions.TTL and Grace"},
		{lockd.SessionOptions{LockDelay: -2}, lockd.ErrInvalid,
			"SessionOptions.LockDelay is -2ns, below 0"},
		{lockd.SessionOptions{LockDelay: 15}, lockd.ErrInvalid, "SessionOptions.LockDelay is " +
			"15ns, below 1ms; was a unit forgotten, as in 15 * time.Second?"},
		{lockd.SessionOptions{LockDelay: lockd.MaxLockDelay + 1}, lockd.ErrInvalid,
			"SessionOptions.LockDelay is 1m0.000000001s, more than 1m0s"},
		{lockd.SessionOptions{Behavior: lockd.DeleteKeys + 1}, lockd.ErrInvalid,
			"SessionOptions.Behavior is 2, not a Behavior"},
		{lockd.SessionOptions{Lifetime: lockd.Independent + 1}, lockd.ErrInvalid,
			"SessionOptions.Lifetime is 2, not a Lifetime"},
		{lockd.SessionOptions{Name: tooLong}, lockd.ErrInvalid,
			"SessionOptions.Name has 16385 bytes"},
		{lockd.SessionOptions{Node: tooLong}, lockd.ErrInvalid,
			"SessionOptions.Node has 16385 bytes"},
		{lockd.SessionOptions{Node: "away"}, catalog.ErrNoNode, `no such node: "away"`},
		{lockd.SessionOptions{Node: "n", Checks: []string{"away"}}, catalog.ErrNoCheck,
			`no such check: "away"`},
		{lockd.SessionOptions{Checks: []string{"bad"}}, catalog.ErrNoCheck,
			`no such check: "bad"`}, // it is on another node
		{lockd.SessionOptions{Node: "n", Checks: []string{"bad"}}, catalog.ErrCheckCritical,
			`"bad"`},
	} {
		calls = append(calls, badInput{"NewSession", func(h *harness, _ *lockd.Session) error {
			s, err := h.NewSession(&tt.opts)
			if s != nil {
				h.t.Errorf("a session comes with the error %v", err)
			}
			return err
		}, tt.want, tt.text})
	}
	refuseAll(t, calls)
}

func TestBadInput_SessionsAndCatalog(t *testing.T) {
	unknown := lockd.SessionID{1}
	var calls []badInput
	for name, call := range map[string]func(h *harness, id lockd.SessionID) error{
		"EndSession": func(h *harness, id lockd.SessionID) error { return h.EndSession(id) },
		"Session": func(h *harness, id lockd.SessionID) error {
			return second(h.Session(id))
		},
		"Txn.EndSession": func(h *harness, id lockd.SessionID) error {
			return h.Update(func(tx *lockd.Txn) error { return tx.EndSession(id) })
		},
		"Txn.Lock": func(h *harness, id lockd.SessionID) error {
			return h.Update(func(tx *lockd.Txn) error { return second(tx.Lock("k", id, nil)) })
		},
		"Txn.Attach": func(h *harness, id lockd.SessionID) error {
			return h.Update(func(tx *lockd.Txn) error { return tx.Catalog().Attach(id, "a", nil) })
		},
	} {
		calls = append(calls,
			badInput{name, func(h *harness, _ *lockd.Session) error { return call(h, unknown) },
				lockd.ErrNoSession, "no such session: " + unknown.String()},
			badInput{name, func(h *harness, _ *lockd.Session) error {
				return call(h, lockd.SessionID{})
			}, lockd.ErrInvalid, "session is empty"})
	}
	for _, tt := range []struct {
		write func(tx *lockd.Txn) error
		want  error
		text  string
	}{
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutNode(catalog.Node{})
		}, lockd.ErrInvalid,
			"Node.Name is empty"},
		{func(tx *lockd.Txn) error { return tx.Catalog().PutNode(catalog.Node{Name: "a\x00b"}) },
			lockd.ErrInvalid, `Node.Name "a\x00b" has a zero byte`},
		{func(tx *lockd.Txn) error { return tx.Catalog().PutNode(catalog.Node{Name: "a\xff"}) },
			lockd.ErrInvalid, `Node.Name "a\xff" is not UTF-8`},
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutService(catalog.Service{Node: "n", Name: "x", ID: "a\xff"})
		}, lockd.ErrInvalid, `Service.ID "a\xff" is not UTF-8`},
		{func(tx *lockd.Txn) error { return tx.Catalog().PutNode(catalog.Node{Name: tooLong}) },
			lockd.ErrInvalid, "Node.Name has 16385 bytes"},
		{func(tx *lockd.Txn) error { return tx.Catalog().PutService(catalog.Service{Node: "n"}) },
			lockd.ErrInvalid, "Service.Name is empty"},
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutService(catalog.Service{Node: "n", Name: "x", ID: tooLong})
		}, lockd.ErrInvalid, "Service.ID has 16385 bytes"},
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutService(catalog.Service{Node: "away", Name: "x"})
		}, catalog.ErrNoNode, `no such node: "away"`},
		{func(tx *lockd.Txn) error { return tx.Catalog().PutCheck(catalog.Check{Node: "n"}) },
			lockd.ErrInvalid, "Check."},
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{
				Node: "n", Name: "x", Status: catalog.Passing + 1,
			})
		}, lockd.ErrInvalid, "Check.Status is 3, not a Status"},
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{Node: "away", Name: "x"})
		}, catalog.ErrNoNode, `no such node: "away"`},
		{func(tx *lockd.Txn) error {
			return tx.Catalog().PutCheck(catalog.Check{Node: "n", Name: "x", ServiceID: "away"})
		}, catalog.ErrNoService, `no such service: "away"`},
	} {
		calls = append(calls, badInput{tt.text, func(h *harness, _ *lockd.Session) error {
			return h.Update(tt.write)
		}, tt.want, tt.text})
	}
	for _, name := range []string{"", tooLong} {
		calls = append(calls, badInput{"Attach", func(h *harness, s *lockd.Session) error {
			return h.Update(func(tx *lockd.Txn) error {
				return tx.Catalog().Attach(s.ID(), name, nil)
			})
		}, lockd.ErrInvalid, "name "})
	}
	refuseAll(t, calls)
}

// Ensure that options of a database are refused with all their faults at once.
func TestBadInput_Options(t *testing.T) {
	opts := &lockd.Options{
		Sync: lockd.SyncNever + 1, Reopen: lockd.EndNone + 1, OpenTimeout: -time.Second,
		FileMode: 1 << 31, History: -1, Node: tooLong,
	}
	path := t.TempDir() + "/never"
	for name, open := range map[string]func() (*lockd.DB, error){
		"New":  func() (*lockd.DB, error) { return lockd.New(opts) },
		"Open": func() (*lockd.DB, error) { return lockd.Open(path, opts) },
	} {
		db, err := open()
		if db != nil || !errors.Is(err, lockd.ErrInvalid) {
			t.Fatalf("%s: got %v, %v", name, db, err)
		}
		for _, text := range []string{
			"Options.Sync is 2, not a SyncPolicy", "Options.Reopen is 3, not a ReopenPolicy",
			"Options.OpenTimeout is -1s, below 0", "Options.FileMode is ",
			"Options.History is -1, below 0", "Options.Node has 16385 bytes",
		} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: got %.500v, want %q", name, err, text)
			}
		}
	}
	if _, err := lockd.Open("", nil); !errors.Is(err, lockd.ErrInvalid) ||
		!strings.Contains(err.Error(), "path is empty") {
		t.Errorf("no path: got %v", err)
	}
}

// Ensure that a text that is no session ID is refused, and leaves the ID as it was.
func TestBadInput_SessionID(t *testing.T) {
	const id = "0f8fad5b-d9cb-469f-a165-70867728950e"
	for _, text := range []string{
		"x", id[1:], id + "0", "{" + id + "}", "urn:uuid:" + id,
		strings.ReplaceAll(id, "-", ""), strings.Replace(id, "0f", "0g", 1),
		"00000000-0000-0000-0000-000000000000", " " + id[1:],
	} {
		got, err := lockd.ParseSessionID(text)
		if !errors.Is(err, lockd.ErrInvalid) || !got.IsZero() ||
			!strings.Contains(err.Error(), "is not a UUID") {
			t.Errorf("%q: got %v, %v", text, got, err)
		}
		was := lockd.SessionID{1}
		read := was
		if err := read.UnmarshalText([]byte(text)); err == nil || read != was {
			t.Errorf("unmarshal %q: got %v, %v", text, read, err)
		}
	}
	if _, err := lockd.ParseSessionID(""); !errors.Is(err, lockd.ErrInvalid) {
		t.Errorf("the empty text: got %v", err)
	}
	read := lockd.SessionID{1} // but it is the text of the zero value
	if err := read.UnmarshalText(nil); err != nil || !read.IsZero() {
		t.Errorf("unmarshal the empty text: got %v, %v", read, err)
	}
}
