package lockdui

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/lockd/lockd"
)

// The measures of a drawing of lanes, in its own units.
const (
	lanesWidth  = 900.0
	lanesLeft   = 170.0 // the x at which time begins; the names are left of it
	lanesRight  = 16.0
	lanesTop    = 28.0 // room for the axis
	laneHeight  = 34.0
	barHeight   = 14.0
	leastBar    = 3.0 // so that a short hold can be seen
	lanesShown  = 20
	ticks       = 5
	leastSpan   = time.Second
	charWidth   = 5.8 // of a label
	labelLength = 30
)

// lanes is a drawing of a key's history: a lane for each session, time from left to right.
type lanes struct {
	Width, Height float64
	Left, Right   float64
	Lanes         []lane
	Ticks         []tick
	Earlier       int  // sessions that are left out
	Shared        bool // whether some have shared the lock
	Waited        bool // whether some grants ended a wait
}

// lane is what one session has done.
type lane struct {
	party
	Y, Middle float64
	Bars      []bar
	Marks     []mark
}

// bar is a stretch of time.
type bar struct {
	Kind        string // "hold", "share", "delay", "waited", or "wait" for a wait that lasts
	X, Y, Width float64
	Text        string // shown while a person points at the bar
}

// mark is the end of a hold, with its cause.
type mark struct {
	X, Y   float64
	Lost   bool
	labels []string // the best one first
	Label  string   // empty: there is no room for one
	Anchor string   // of the label
	Text   string
}

// tick is a place on the axis.
type tick struct {
	X      float64
	Text   string
	Anchor string
}

// Lanes draws what has happened up to now.
func (v keyView) Lanes(now time.Time) *lanes {
	d := drawing{
		now: now, from: now, byID: make(map[lockd.SessionID]*lane),
		began: make(map[holding]time.Time), ended: make(map[holding]bool),
	}
	for _, s := range v.History {
		d.from = earliest(d.from, s.Began())
	}
	for _, w := range v.Lock.Queue {
		d.from = earliest(d.from, w.Since)
	}
	if v.Lock.Limit > 0 || len(v.History)+len(v.Lock.Queue) == 0 {
		return nil // slots have their histories at their own keys
	}
	if now.Sub(d.from) < leastSpan {
		d.from = now.Add(-leastSpan)
	}
	for _, s := range v.History {
		d.step(s)
	}
	for _, h := range v.Lock.Holders {
		d.holds(h)
	}
	for _, w := range v.Lock.Queue {
		d.bar("wait", d.lane(w.party), w.Since, now, "waits since "+clockTime(now, w.Since))
	}
	return d.finish()
}

func earliest(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}

// drawing is the state in which lanes are drawn.
type drawing struct {
	from, now time.Time
	lanes     []*lane
	byID      map[lockd.SessionID]*lane
	began     map[holding]time.Time // of grants whose beginning is in the history
	ended     map[holding]bool      // grants whose end is in the history
	shared    bool
	waited    bool
}

// holding is one grant of a session.
type holding struct {
	lockd.SessionID
	grant
}

// x is the place of an instant on the axis.
func (d *drawing) x(at time.Time) float64 {
	share := float64(at.Sub(d.from)) / float64(d.now.Sub(d.from))
	return lanesLeft + min(max(share, 0), 1)*(lanesWidth-lanesLeft-lanesRight)
}

// lane returns the lane of a session. The lanes are in the order in which they are first asked for.
func (d *drawing) lane(p party) *lane {
	l := d.byID[p.ID]
	if l == nil {
		l = &lane{party: p}
		d.byID[p.ID] = l
		d.lanes = append(d.lanes, l)
	}
	return l
}

// step draws the wait or the hold that ends with the step.
func (d *drawing) step(s step) {
	l, one := d.lane(s.party), holding{s.ID, s.grant}
	if !s.Ended {
		d.began[one] = s.At
		if s.Waited > 0 {
			d.wait(l, s)
		}
		return
	}
	d.ended[one] = true
	since, known := d.began[one]
	if !known {
		since = d.from // the grant is among the dropped steps
	}
	verb := "held"
	if s.Shared() {
		verb = "shared"
	}
	text := verb + " it for " + period(s.At.Sub(since))
	if !known {
		text = verb + " it, since before the drawing begins"
	}
	d.hold(l, s.grant, since, s.At, text)
	cause, _, _ := strings.Cut(s.Cause, ":")
	l.Marks = append(l.Marks, mark{
		X: d.x(s.At), Lost: s.Lost,
		labels: []string{cut(cause, labelLength), s.What},
		Text:   fmt.Sprintf("%s %s: %s", s.At.Format("15:04:05.000"), s.What, s.Cause),
	})
	if s.Delay > 0 {
		text := "lock-delay of " + setting(s.Delay)
		if s.Shared() {
			text += " for exclusive requests"
		}
		d.bar("delay", l, s.At, earliest(d.now, s.At.Add(s.Delay)), text)
	}
}

// wait draws a wait that ended with a grant. A wait too short to be seen is drawn longer: it begins
// too early then, because the hold follows at its end.
func (d *drawing) wait(l *lane, s step) {
	d.waited = true
	d.bar("waited", l, s.Began(), s.At, "waited for "+period(s.Waited))
	b := &l.Bars[len(l.Bars)-1]
	b.X = d.x(s.At) - b.Width
}

// holds draws a hold that lasts. The hold may have begun before the history.
func (d *drawing) holds(h holder) {
	one := holding{h.ID, h.grant}
	if d.ended[one] { // the grant ended after the holders were looked up
		return
	}
	since, known := d.began[one]
	if !known {
		since = h.Since
	}
	text := "holds it since "
	if h.Shared() {
		text = "shares it since "
	}
	if since.IsZero() {
		text += "before the file was opened"
	} else {
		text += clockTime(d.now, since)
	}
	d.hold(d.lane(h.party), h.grant, since, d.now, text)
}

// hold draws a hold.
func (d *drawing) hold(l *lane, g grant, from, to time.Time, text string) {
	kind := "hold"
	if g.Shared() {
		kind, d.shared = "share", true
	}
	d.bar(kind, l, from, to, fmt.Sprintf("%s, fence %d", text, g.Fence))
}

// bar draws a stretch of time.
func (d *drawing) bar(kind string, l *lane, from, to time.Time, text string) {
	b := bar{Kind: kind, X: d.x(from), Text: text}
	b.Width = max(d.x(to)-b.X, leastBar)
	l.Bars = append(l.Bars, b)
}

// finish gives the lanes their places. If there are too many, it leaves out the first ones.
func (d *drawing) finish() *lanes {
	out := &lanes{
		Width: lanesWidth, Left: lanesLeft, Right: lanesWidth - lanesRight,
		Shared: d.shared, Waited: d.waited,
	}
	if out.Earlier = max(0, len(d.lanes)-lanesShown); out.Earlier > 0 {
		d.lanes = d.lanes[out.Earlier:]
	}
	for i, l := range d.lanes {
		l.Y = lanesTop + float64(i)*laneHeight
		l.Middle = l.Y + laneHeight/2
		for at := range l.Bars {
			l.Bars[at].Y = l.Middle - barHeight/2
		}
		for at := range l.Marks {
			l.Marks[at].Y = l.Middle
			l.label(at)
		}
		out.Lanes = append(out.Lanes, *l)
	}
	out.Height = lanesTop + float64(len(d.lanes))*laneHeight + 4
	span := d.now.Sub(d.from)
	for i := range ticks {
		at := d.from.Add(span * time.Duration(i) / (ticks - 1))
		t := tick{d.x(at), axisTime(span, at), "middle"}
		switch i {
		case 0:
			t.Anchor = "start"
		case ticks - 1:
			t.Anchor, t.Text = "end", "now "+t.Text
		}
		out.Ticks = append(out.Ticks, t)
	}
	return out
}

// label gives a mark the first label that has room above the bars, before the next mark.
func (l *lane) label(at int) {
	m := &l.Marks[at]
	room := lanesWidth
	if at+1 < len(l.Marks) {
		room = l.Marks[at+1].X - m.X
	}
	for _, text := range m.labels {
		width := float64(utf8.RuneCountInString(text)) * charWidth
		m.Anchor = "start"
		if m.X+width > lanesWidth-lanesRight {
			m.Anchor = "end"
		}
		if 2*width < room { // the label of the next mark may begin left of that mark
			m.Label = text
			return
		}
	}
}

// axisTime is an instant on an axis of that span.
func axisTime(span time.Duration, at time.Time) string {
	switch {
	case span < 10*time.Second:
		return at.Format("15:04:05.0")
	case span < 12*time.Hour:
		return at.Format("15:04:05")
	case span < 48*time.Hour:
		return at.Format("Mon 15:04")
	}
	return at.Format("2 Jan 15:04")
}
