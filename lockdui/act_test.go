package lockdui_test

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/lockdui"
)

var allowed = &lockdui.Options{Actions: lockdui.ForceUnlockAndEnd}

// form is a form that a page has, as a browser sends it.
type form struct {
	cookie *http.Cookie
	fields url.Values
}

var field = regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`)

// formOn returns the form on a page.
func (h *harness) formOn(target string) form {
	h.t.Helper()
	r := h.get(target)
	f := form{fields: make(url.Values)}
	for _, m := range field.FindAllStringSubmatch(r.body, -1) {
		f.fields.Set(m[1], html.UnescapeString(m[2]))
	}
	for _, c := range (&http.Response{Header: r.header}).Cookies() {
		f.cookie = c
	}
	if f.cookie == nil || f.fields.Get("token") == "" {
		h.t.Fatalf("%s: no form in %s", target, r.body)
	}
	return f
}

// send sends the form, with one header more.
func (h *harness) send(action string, f form, name, value string) reply {
	r := request("POST", action, f.fields)
	if f.cookie != nil {
		r.AddCookie(f.cookie)
	}
	if name != "" {
		r.Header.Set(name, value)
	}
	return h.do(r)
}

func cookie(value string) *http.Cookie { return &http.Cookie{Name: "lockdui", Value: value} }

// Ensure that a form says how long the lock-delay is that its action begins, and if there is none.
func TestAct_TellsTheDelay(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		long := h.holds("long", "k")
		none, err := h.NewSession(&lockd.SessionOptions{Name: "none", LockDelay: lockd.NoLockDelay})
		h.must(err)
		_, err = none.TryLock("free", nil)
		h.must(err)
		h.shows("/key?k=k", "The grant of long with fence", "its lock-delay of 15 s begins")
		h.shows("/key?k=free", "The grant of none with fence", "without a lock-delay")
		h.shows("/sessions?id="+long.ID().String(), "its lock-delay of 15 s begins")
		h.shows("/sessions?id="+none.ID().String(), "without a lock-delay")
		h.hides("/key?k=free", "begins")
		h.hides("/sessions?id="+none.ID().String(), "begins")
	})
}

// Ensure that the form on a key's page takes away the grant that the page showed, for any key.
func TestAct_ForceUnlock(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		for _, key := range hostile {
			s := h.session("holder")
			lock, err := s.TryLock(key, nil)
			h.must(err)
			f := h.formOn("/key?k=" + url.QueryEscape(key))
			c := f.cookie
			if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "" {
				t.Errorf("cookie %+v", c)
			}
			f.fields.Set("reason", "it hangs")
			r := h.send("/force-unlock", f, "Sec-Fetch-Site", "same-origin")
			to := r.header.Get("Location")
			if r.code != 303 || to != "key?k="+url.QueryEscape(key) {
				t.Fatalf("%q: %d to %q: %s", key, r.code, to, r.words())
			}
			if err := lock.Err(); !errors.Is(err, lockd.ErrForced) {
				t.Errorf("%q: %v", key, err)
			}
			if r := h.send("/force-unlock", f, "", ""); r.code != 409 {
				t.Errorf("%q again: %d", key, r.code)
			}
		}
	})
}

// Ensure that the form takes no lock away without a reason, which the page asks for, and says so.
func TestAct_ForceUnlock_WithoutReason(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		s := h.holds("holder", "k")
		f := h.formOn("/key?k=k")
		for _, reason := range []string{"", " ", "\t\r\n", "\u00a0\u2003"} {
			f.fields.Set("reason", reason)
			r := h.send("/force-unlock", f, "", "")
			inOrder(t, reason, r.words(), "Nothing was changed", "the reason is empty")
			if r.code != 400 || lockOf(h, "k").Holder.ID != s.ID() {
				t.Errorf("reason %q: %d", reason, r.code)
			}
		}
		f.fields.Del("reason")
		if r := h.send("/force-unlock", f, "", ""); r.code != 400 {
			t.Errorf("no reason: %d", r.code)
		}
	})
}

// Ensure that the form on a session's page ends the session.
func TestAct_EndSession(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		s := h.session("s")
		f := h.formOn("/sessions?id=" + s.ID().String())
		r := h.send("/end-session", f, "Origin", "http://localhost")
		if r.code != 303 || !errors.Is(s.Err(), lockd.ErrDestroyed) {
			t.Fatalf("%d %s: %v", r.code, r.words(), s.Err())
		}
		h.shows("/"+r.header.Get("Location"), "It does not live.", "session destroyed")
		if r := h.send("/end-session", f, "", ""); r.code != 409 {
			t.Errorf("again: %d", r.code)
		}
	})
}

// Ensure that a form that is not from the handler's own page is refused, and changes nothing.
func TestAct_ForgedForms(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		s := h.holds("holder", "k")
		good := h.formOn("/key?k=k")
		other, err := lockdui.Handler(h.DB.DB, allowed)
		h.must(err)
		mine := h.Handler
		h.Handler = other
		foreign := h.formOn("/key?k=k")
		h.Handler = mine
		without := func(field string) form {
			f := form{good.cookie, make(url.Values)}
			for k, v := range good.fields {
				if k != field {
					f.fields[k] = v
				}
			}
			return f
		}
		for name, c := range map[string]struct {
			form          form
			header, value string
		}{
			"no token":               {form: without("token")},
			"no cookie":              {form: form{nil, good.fields}},
			"another one's cookie":   {form: form{cookie(strings.Repeat("0", 32)), good.fields}},
			"an empty cookie":        {form: form{cookie(""), without("token").fields}},
			"another handler's form": {form: foreign},
			"another origin":         {good, "Origin", "http://evil.example"},
			"another site":           {good, "Sec-Fetch-Site", "cross-site"},
			"a sister site":          {good, "Sec-Fetch-Site", "same-site"},
			"a hidden origin":        {good, "Origin", "null"},
		} {
			if r := h.send("/force-unlock", c.form, c.header, c.value); r.code != 403 {
				t.Errorf("%s: %d %s", name, r.code, r.words())
			}
		}
		if lockOf(h, "k").Holder.ID != s.ID() {
			t.Error("the lock was taken away")
		}
		link := request("GET", "/force-unlock?"+good.fields.Encode(), nil)
		link.AddCookie(good.cookie)
		if r := h.do(link); r.code != 405 {
			t.Errorf("a link: %d", r.code)
		}
		good.fields.Set("fence", "x")
		if r := h.send("/force-unlock", good, "", ""); r.code != 400 {
			t.Errorf("no fence: %d", r.code)
		}
		if r := h.send("/end-session", good, "", ""); r.code != 400 {
			t.Errorf("no session: %d", r.code)
		}
	})
}

// Ensure that pages that only show have no forms and no cookies, and refuse every action.
func TestAct_ShowOnly(t *testing.T) {
	run(t, nil, nil, func(h *harness) {
		s := h.holds("holder", "k")
		for _, target := range []string{"/key?k=k", "/sessions?id=" + s.ID().String()} {
			r := h.get(target)
			if r.header.Get("Set-Cookie") != "" || field.MatchString(r.body) {
				t.Errorf("%s: %q, %s", target, r.header.Get("Set-Cookie"), r.body)
			}
		}
		f := form{fields: url.Values{"session": {s.ID().String()}}}
		for _, action := range []string{"/force-unlock", "/end-session"} {
			if r := h.send(action, f, "", ""); r.code != 403 {
				t.Errorf("%s: %d", action, r.code)
			}
		}
		if s.Err() != nil {
			t.Error(s.Err())
		}
	})
}

// Ensure that the cookie is restricted to TLS if the page is served by TLS.
func TestAct_SecureCookie(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		r := httptest.NewRequest("GET", "https://localhost/", nil)
		cookies := (&http.Response{Header: h.do(r).header}).Cookies()
		if len(cookies) != 1 || !cookies[0].Secure {
			t.Errorf("got %v", cookies)
		}
	})
}

// Ensure that the owner of a lock that is taken away is told the reason that the form gave.
func TestAct_ForceUnlock_TellsTheReason(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		lock, err := h.session("holder").TryLock("k", nil)
		h.must(err)
		f := h.formOn("/key?k=k")
		f.fields.Set("reason", "the backup hangs")
		if r := h.send("/force-unlock", f, "", ""); r.code != 303 {
			t.Fatalf("%d %s", r.code, r.words())
		}
		if text := lock.Err().Error(); !strings.Contains(text, "the backup hangs") {
			t.Errorf("the owner is told: %s", text)
		}
	})
}

// Ensure that the form tells the longest of the lock-delays of the holders that it takes the lock
// from at once. They are in the order of their IDs, which is another for each key.
func TestAct_TellsTheLongestDelay(t *testing.T) {
	run(t, allowed, nil, func(h *harness) {
		for n := range 16 {
			key := fmt.Sprintf("k%d", n)
			var ids []lockd.SessionID
			for _, delay := range []time.Duration{40 * time.Second, 20 * time.Second} {
				s, err := h.NewSession(&lockd.SessionOptions{LockDelay: delay})
				h.must(err)
				ids = append(ids, s.ID())
			}
			h.must(h.Update(func(tx *lockd.Txn) error {
				for _, id := range ids { // with one fence
					if _, err := tx.Lock(key, id, sharing); err != nil {
						return err
					}
				}
				return nil
			}))
			h.shows("/key?k="+key, "lock-delay of 40 s begins")
		}
	})
}

// Ensure that the log has the address of the client with each action, refused or not.
func TestAct_LogsTheClient(t *testing.T) {
	var log bytes.Buffer
	opts := *allowed
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	run(t, &opts, nil, func(h *harness) {
		holder := h.holds("holder", "k")
		f := h.formOn("/key?k=k")
		f.fields.Set("reason", "it hangs")
		end := h.formOn("/sessions?id=" + holder.ID().String())
		for _, c := range []struct {
			action string
			form   form
			want   string
		}{
			{"/force-unlock", f, "lock taken away"},
			{"/force-unlock", f, "action refused"},
			{"/end-session", end, "session ended"},
		} {
			log.Reset()
			h.send(c.action, c.form, "", "")
			inOrder(t, c.action, log.String(), c.want, "from=192.0.2.1:1234") // httptest's client
		}
	})
}
