package lockdui

import (
	"cmp"
	"embed"
	"html/template"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/lockd/lockd"
)

//go:embed assets
var assets embed.FS

// page is what the templates are given.
type page struct {
	Now  time.Time
	Zone string
	Head head
	Body content
	Form string // the token of its forms; empty: it has none

	sent map[string]*lock // the rows of locks that the client has, by their keys
}

// Kept reports whether the client has the row as it is. The client itself moves the ages and bars
// of the row on.
func (p page) Kept(row *lock) bool { return reflect.DeepEqual(p.sent[row.Key], row) }

// head is what every page has at its top.
type head struct {
	View  string // the template of the body
	Index uint64

	Keys, Sessions, Waiters int

	Locks  int // held by one session alone
	Shares int // holders of locks that are shared

	// Err is why the database takes no writes; empty if it takes them.
	Err string
}

func (h *handler) newPage(r *http.Request, now time.Time, body content) page {
	return page{
		Now: now, Zone: now.Format("MST"), Head: headOf(h.db.Stats(), body.template()), Body: body,
		Form: h.knownToken(r),
	}
}

func headOf(stats lockd.Stats, view string) head {
	head := head{
		View: view, Index: stats.Index, Keys: stats.Keys, Sessions: stats.Sessions,
		Locks: stats.Locks, Shares: stats.Shares, Waiters: stats.Waiters,
	}
	if stats.Err != nil {
		head.Err = stats.Err.Error()
	}
	return head
}

// render writes a template. The templates are fixed, so an error is a bug of this package.
func (p page) render(w io.Writer, name string) {
	if err := templates.ExecuteTemplate(w, name, p); err != nil {
		panic(err)
	}
}

// Main renders the template of the body: a template cannot name another by a variable.
func (p page) Main() (template.HTML, error) {
	var out strings.Builder
	err := templates.ExecuteTemplate(&out, p.Body.template(), p)
	return template.HTML(out.String()), err // escaped by the template that made it
}

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"age":     ageOf,
	"at":      clockTime,
	"bytes":   figure[int64],
	"cell":    cell,
	"cost":    cost,
	"count":   figure[int],
	"delay":   delayOf,
	"escaped": url.QueryEscape,
	"full":    func(t time.Time) string { return t.Format("2006-01-02 15:04:05.000 MST") },
	"key":     keyHref,
	"meant":   meant,
	"more":    more,
	"num":     figure[uint64],
	"period":  period,
	"printed": title,
	"setting": setting,
	"short":   func(text string) string { return cut(printed(text), boxLength) },
	"size":    size,
}).ParseFS(assets, "assets/*.html"))

// more says how many of the rows are not shown.
func more(rows any, shown int) string {
	if n := reflect.ValueOf(rows).Len() - shown; n > 0 {
		return "and " + figure(n) + " more"
	}
	return ""
}

// left is the time that is left until an instant, drawn as a bar that runs out.
type left struct {
	Until time.Time
	Of    time.Duration // the length of the whole bar
	What  string        // what the time is left of, for people who cannot see the bar
	now   time.Time
}

// Millis is the time that is left, in milliseconds.
func (l left) Millis() int64 { return max(0, l.Until.Sub(l.now)).Milliseconds() }

// Whole is the length of the bar, in milliseconds.
func (l left) Whole() int64 { return l.Of.Milliseconds() }

// Text is the time that is left.
func (l left) Text() string { return period(l.Until.Sub(l.now)) }

// delay is a lock-delay, with the time that is left of it. The whole bar stands for MaxLockDelay,
// so that two delays can be compared.
type delay struct {
	left
	Mode lockd.LockMode
}

func delayOf(now time.Time, d lockDelay) delay {
	of := lockd.MaxLockDelay
	return delay{left{d.Until, of, "lock-delay, of " + setting(of), now}, d.Mode}
}

// Shared reports whether the delay keeps out exclusive requests only.
func (d delay) Shared() bool { return d.Mode == lockd.Shared }

// party is what a page shows of a session that it names.
type party struct {
	ID         lockd.SessionID
	Name, Node string
}

func partyOf(info lockd.SessionInfo) party { return party{info.ID, info.Name, info.Node} }

// Text is the session's name, or the beginning of its ID.
func (p party) Text() string { return cmp.Or(cellOrNone(p.Name), p.Short()) }

// Short is the beginning of the ID, enough to tell sessions apart.
func (p party) Short() string { return p.ID.String()[:8] }

// Box is Text for a drawing, where there is little room.
func (p party) Box() string {
	if p.Name == "" {
		return p.Short()
	}
	return cut(printed(p.Name), boxLength)
}

// Href leads to the session.
func (p party) Href() string { return "sessions?id=" + p.ID.String() }

func cellOrNone(text string) string {
	if text == "" {
		return ""
	}
	return cell(text)
}
