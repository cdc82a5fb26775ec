package engine_test

import (
	"bytes"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
)

// fields writes the pairs whose values are not zero as name=value.
func fields(pairs ...any) string {
	var text strings.Builder
	for i := 0; i < len(pairs); i += 2 {
		if value := fmt.Sprint(pairs[i+1]); value != "" && value != "0" && value != "0s" {
			fmt.Fprintf(&text, " %s=%s", pairs[i], value)
		}
	}
	return text.String()
}

func entry(row *schema.Key) string {
	if row == nil {
		return "nothing there"
	}
	return row.Key + " " + quoted(row.Value) + fields("flags", flags(row.Flags),
		"create", row.CreateIndex, "modify", row.ModifyIndex, "lock", row.LockIndex,
		"fence", row.Fence, "by", sessionName(row.Session))
}

// quoted returns a value in quotes, or as it is if it contains quotes.
func quoted(value []byte) string {
	if bytes.ContainsRune(value, '"') {
		return string(value)
	}
	return strconv.Quote(string(value))
}

// flags names the flags that all keys of a semaphore have (M1).
func flags(n uint64) string {
	if n == 0xe0f69a2baa414de0 {
		return "semaphore"
	}
	return strconv.FormatUint(n, 10)
}

// after is an instant as the time since the world began.
func after(at time.Time) time.Duration { return at.Sub(begin) }

func (w *world) event(e *engine.Event) string {
	r := &e.Body
	text := fmt.Sprintf("#%d ", e.Index)
	switch row := row(r).(type) {
	case *schema.Key:
		text += row.Key
	case *schema.Share:
		text += row.Key() + " share of " + sessionName(row.Session())
	case *schema.Session:
		text += "session " + sessionName(row.ID)
	case *schema.Node:
		text += "node " + row.Name
	case *schema.Service:
		text += "service " + row.Node + "/" + row.ID
	case *schema.Check:
		text += "check " + row.Node + "/" + row.ID
	case *schema.Attachment:
		text += "attachment " + row.Name
	}
	switch r.Kind {
	case engine.SessionCreated:
		text += " begins"
	case engine.ShareGranted, engine.ShareEnded: // what became of it is said below
	case engine.SessionGone:
		text += " ends: " + r.Cause.Error()
	case engine.KeyDeleted, engine.NodeDeleted, engine.ServiceDeleted, engine.CheckDeleted,
		engine.AttachmentDeleted:
		text += " deleted"
	default:
		text += " put"
	}
	switch {
	case r.Holder != nil && r.Former != nil:
		text += ", handed on to " + sessionName(r.Holder.ID) + ": " + r.Cause.Error()
	case r.Holder != nil:
		text += ", granted to " + sessionName(r.Holder.ID)
	case r.Former == nil:
	case r.Kind == engine.KeyDeleted || errors.Is(r.Cause, engine.ErrKeyDeleted):
		text += ", lock deleted: " + r.Cause.Error()
	case engine.Clean(r.Cause):
		text += ", released: " + r.Cause.Error()
	default:
		text += ", lost: " + r.Cause.Error()
	}
	if r.Delay != nil {
		text += fmt.Sprintf(", delayed until %v", after(r.Delay.Until))
	}
	return text + fields("waited", r.Waited)
}

// row returns the row that an event is about: the new row, or the old one if that is gone.
func row(r *engine.Record) any {
	switch r.Kind {
	case engine.KeyDeleted, engine.SessionGone, engine.NodeDeleted, engine.ServiceDeleted,
		engine.CheckDeleted, engine.AttachmentDeleted, engine.ShareEnded:
		return r.Old
	}
	return r.New
}

// problem returns an error with the details that a user would be told.
func (w *world) problem(err error) string {
	var b *engine.Blocked
	if !errors.As(err, &b) {
		return err.Error()
	}
	text := b.Key
	switch b.Obstacle {
	case engine.ByHolder:
		text += " is held by " + sessionName(b.Holder)
		if n := len(b.Holders); n > 0 {
			text = fmt.Sprintf("%s is shared by %d, longest by %s", b.Key, n,
				sessionName(b.Holder))
		}
	case engine.ByDelay:
		text += " is delayed"
	case engine.ByQueue:
		text += " has a queue"
	case engine.BySlots:
		text += " has no slot"
		if !b.Holder.IsZero() {
			text += ", longest held by " + sessionName(b.Holder)
		}
	}
	if b.Own {
		text += " itself"
	}
	if !b.Until.IsZero() {
		text += fields("until", after(b.Until))
	}
	return text + fields("fence", b.Fence, "held", b.Held, "left", b.Remaining,
		"waiters", b.Waiters, "limit", b.Limit)
}

// slowness is what is slow, in words.
func (w *world) slowness(s *engine.Slow) string {
	text := sessionName(s.Session.ID)
	if s.Fence == 0 {
		text += " waits for " + s.Key + fields("mode", modes[s.Mode], "for", s.Lasted)
		if s.Blocked != nil {
			text += ": " + w.problem(s.Blocked)
		}
		return text
	}
	text += " holds " + s.Key + fields("mode", modes[s.Mode], "fence", s.Fence, "for", s.Lasted,
		"waiters", s.Waiters)
	if s.First != nil {
		text += " first=" + sessionName(s.First.ID)
	}
	return text
}

// show prints the keys, delays and queues.
func (w *world) show() {
	for _, row := range w.rows.Keys.Ascend("") {
		w.printf("%s\n", entry(row))
	}
	for _, row := range w.rows.Shares.Ascend("") {
		w.printf("share %s%s\n", row.Key(), fields("lock", row.LockIndex, "fence", row.Fence(),
			"by", sessionName(row.Session())))
	}
	for _, row := range w.rows.Delays.Ascend("") {
		of := ""
		if engine.Mode(row.Mode) == engine.Shared {
			of = " of writers"
		}
		w.printf("delay%s %s%s\n", of, row.Key, fields("until", after(row.Until)))
	}
	queues := make(map[string][]string)
	for _, v := range w.engine.LockViews(w.now) {
		for _, waiter := range v.Waiters() {
			queues[v.Key] = append(queues[v.Key], nameOf(waiter.Owner))
		}
	}
	for key, queue := range sorted(queues) {
		w.printf("queue %s: %s\n", key, strings.Join(queue, " "))
	}
}

// showSessions prints the sessions, and what is attached to them.
func (w *world) showSessions() {
	for _, row := range w.rows.Sessions.Ascend("") {
		w.printf("session %s%s\n", sessionName(row.ID), fields("node", row.Node,
			"checks", strings.Join(row.Checks, ","), "ttl", row.TTL, "create", row.CreateIndex))
	}
	for _, row := range w.rows.Attachments.Ascend("") {
		w.printf("attachment %s %q%s\n", row.Name, row.Value, fields(
			"of", sessionName(row.Session), "create", row.CreateIndex, "modify", row.ModifyIndex))
	}
}

// showCatalog prints nodes, services and checks.
func (w *world) showCatalog() {
	for _, row := range w.rows.Nodes.Ascend("") {
		w.printf("node %s%s\n", row.Name, fields("id", row.ID, "address", row.Address,
			"create", row.CreateIndex, "modify", row.ModifyIndex))
	}
	for _, row := range w.rows.Services.Ascend("") {
		w.printf("service %s/%s%s\n", row.Node, row.ID,
			fields("create", row.CreateIndex, "modify", row.ModifyIndex))
	}
	for _, row := range w.rows.Checks.Ascend("") {
		w.printf("check %s/%s %s%s\n", row.Node, row.ID, statuses[row.Status], fields(
			"output", row.Output, "service", row.ServiceID, "ttl", row.TTL,
			"create", row.CreateIndex, "modify", row.ModifyIndex))
	}
}

// showIndexes prints the indexes, the tombstones and the marks, as they are published.
func (w *world) showIndexes() {
	w.printf("index %d, published %d\n", w.rows.Index(), w.rows.Published())
	published := w.rows.Snapshot()
	for _, row := range published.Graves.Ascend("") {
		switch row.Kind {
		case engine.GraveKey:
			w.printf("grave %s%s\n", row.Name, fields("index", row.Index))
		case engine.GravePrefix:
			w.printf("grave %s*%s\n", row.Name, fields("index", row.Index))
		case engine.GraveSession:
			w.printf("grave session %s%s\n", strings.TrimRight(row.Name, "\x00"),
				fields("index", row.Index))
		}
	}
	for _, row := range published.Marks.Ascend("") {
		w.printf("mark %s%s\n", row.Name, fields("index", row.Index))
	}
}

// record adds to the trace all that came out, in the order in which it did.
func (w *world) record(o engine.Outcome) {
	if w.trace == nil {
		return
	}
	for i := range o.Effects {
		f := &o.Effects[i]
		fmt.Fprintf(w.trace, "effect %d", f.Kind)
		if f.Hold != nil {
			fmt.Fprintf(w.trace, " hold %s lock=%d fence=%d", nameOf(f.Hold.Owner),
				f.Hold.LockIndex, f.Hold.Fence)
		}
		if f.Waiter != nil {
			fmt.Fprintf(w.trace, " waiter %s: %v", nameOf(f.Waiter.Owner), f.Waiter.Err)
		}
		if f.Session != nil {
			fmt.Fprintf(w.trace, " session %s", sessionName(f.Session.Row.ID))
		}
		fmt.Fprintf(w.trace, ": %v\n", f.Cause)
	}
	for i := range o.Events {
		e := &o.Events[i]
		r := &e.Body
		fmt.Fprintf(w.trace, "%d %c %q %d %d %v %v %+v %+v %+v %v %+v %+v\n", e.Index, e.Space,
			e.Name, e.Size, r.Kind, r.Time, r.Cause, r.Old, r.New, r.Holder, r.Waited,
			r.Former, r.Delay)
	}
	fmt.Fprintf(w.trace, "published %d\n", o.Index)
}

// recordRows adds to the trace all published rows, in order.
func (w *world) recordRows() {
	s := w.rows.Snapshot()
	recordTable(w, "key", s.Keys.Ascend(""))
	recordTable(w, "session", s.Sessions.Ascend(""))
	recordTable(w, "node", s.Nodes.Ascend(""))
	recordTable(w, "service", s.Services.Ascend(""))
	recordTable(w, "check", s.Checks.Ascend(""))
	recordTable(w, "attachment", s.Attachments.Ascend(""))
	recordTable(w, "delay", s.Delays.Ascend(""))
	recordTable(w, "grave", s.Graves.Ascend(""))
	recordTable(w, "mark", s.Marks.Ascend(""))
	recordTable(w, "share", s.Shares.Ascend(""))
}

func recordTable[T any](w *world, table string, rows iter.Seq2[string, *T]) {
	for key, row := range rows {
		fmt.Fprintf(w.trace, "%s %q %+v\n", table, key, *row)
	}
}
