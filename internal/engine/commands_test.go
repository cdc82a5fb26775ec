package engine_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/lockd/lockd/internal/engine"
	"github.com/lockd/lockd/internal/schema"
	"github.com/lockd/lockd/store"
)

// args are the arguments of one command. The command has to read each of them once.
type args struct {
	w     *world
	line  string
	words []string
	named map[string][]string
	input []string // the lines that follow
}

// inAngles is the name of a session in place of its ID.
var inAngles = regexp.MustCompile(`<(\w+)>`)

func (w *world) parse(line string) (command string, a *args) {
	w.t.Helper()
	text := inAngles.ReplaceAllStringFunc(line, func(name string) string {
		return idOf(strings.Trim(name, "<>")).UUID()
	})
	command, parsed, err := datadriven.ParseLine(text)
	if err != nil {
		w.t.Fatal(err)
	}
	a = &args{w: w, line: line, named: make(map[string][]string)}
	for _, arg := range parsed {
		if arg.Vals == nil {
			a.words = append(a.words, arg.Key)
		} else {
			a.named[arg.Key] = arg.Vals
		}
	}
	return command, a
}

// done fails the test if there is an argument that the command does not know.
func (a *args) done() {
	a.w.t.Helper()
	if len(a.words)+len(a.named) > 0 {
		a.w.t.Fatalf("%q: arguments left over: %q %q", a.line, a.words, a.named)
	}
}

// more reports whether there is another argument without a name.
func (a *args) more() bool { return len(a.words) > 0 }

// word returns the next argument without a name.
func (a *args) word() string {
	a.w.t.Helper()
	if !a.more() {
		a.w.t.Fatalf("%q: an argument is missing", a.line)
	}
	first := a.words[0]
	a.words = a.words[1:]
	return first
}

func (a *args) list(name string) []string {
	values := a.named[name]
	delete(a.named, name)
	return values
}

func (a *args) text(name string) string { return strings.Join(a.list(name), ", ") }

func (a *args) number(text string) uint64 {
	a.w.t.Helper()
	if text == "" {
		return 0
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		a.w.t.Fatalf("%q: %v", a.line, err)
	}
	return n
}

func (a *args) duration(text string) time.Duration {
	a.w.t.Helper()
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		a.w.t.Fatalf("%q: %v", a.line, err)
	}
	return d
}

// choice returns the place of the named argument in the choices, and 0 if it was not given.
func (a *args) choice(name string, choices []string) uint8 {
	a.w.t.Helper()
	text := a.text(name)
	if text == "" {
		return 0
	}
	for i, choice := range choices {
		if choice == text {
			return uint8(i)
		}
	}
	a.w.t.Fatalf("%q: %s is none of %q", a.line, name, choices)
	return 0
}

// session returns the handle of a session, which may have ended.
func (a *args) session() *engine.Session {
	a.w.t.Helper()
	name := a.word()
	s := a.w.sessions[name]
	if s == nil {
		a.w.t.Fatalf("%q: there never was a session %s", a.line, name)
	}
	return s
}

// lockOptions returns the options of a lock: value, flags, after and mode.
func (a *args) lockOptions() engine.LockOptions {
	opts := engine.LockOptions{
		Flags:  a.number(a.text("flags")),
		Policy: engine.KeyPolicy(a.choice("after", []string{"leave", "remove"})),
		Mode:   a.mode(),
	}
	if value := a.list("value"); value != nil {
		opts.Value = []byte(value[0])
	}
	return opts
}

func (a *args) mode() engine.Mode { return engine.Mode(a.choice("mode", modes)) }

// handle returns the owner of a hold, or of a waiter: as=name, or the session and the keys.
func (a *args) handle(s *engine.Session, keys ...string) *handle {
	h := &handle{name: a.text("as")}
	if h.name == "" {
		h.name = sessionName(s.Row.ID) + ":" + strings.Join(keys, "+")
	}
	h.hold.Owner, h.Waiter.Owner = h, h
	return h
}

var (
	modes    = []string{"exclusive", "shared"}
	statuses = []string{"critical", "warning", "passing"}
	causes   = map[string]error{
		"": engine.ErrDestroyed, "closed": engine.ErrClosed, "restored": engine.ErrRestored,
		"process": engine.ErrProcessGone,
	}
)

// operations are the commands that run in a transaction, alone or with others.
var operations = map[string]func(tx *engine.Txn, a *args) error{

	"put": put, "cas": cas, "get": get, "delete": remove, "delete-cas": deleteCAS,
	"delete-prefix": deletePrefix,
	"lock":          lock, "unlock": unlock, "force": force, "prove": prove,
	"try": try, "wait": wait, "release": release, "withdraw": withdraw,
	"downgrade": downgrade, "give-up": giveUp,
	"slot": slot, "wait-slot": waitSlot, "limit": limit,
	"session": session, "end": end, "expire": expire,
	"node": node, "delete-node": deleteNode, "service": service,
	"delete-service": deleteService, "check": check, "delete-check": deleteCheck,
	"attach": attach, "detach": detach, "restore": restore, "dismiss": dismiss,
}

func put(tx *engine.Txn, a *args) error {
	row := tx.Put(a.word(), []byte(a.word()), a.number(a.text("flags")))
	a.w.printf("%s\n", entry(row))
	return nil
}

func cas(tx *engine.Txn, a *args) error {
	key, index, value := a.word(), a.number(a.word()), a.word()
	if err := tx.CheckIndex(key, index); err != nil {
		return err
	}
	a.w.printf("%s\n", entry(tx.Put(key, []byte(value), 0)))
	return nil
}

func get(tx *engine.Txn, a *args) error {
	a.w.printf("%s\n", entry(tx.Get(a.word())))
	return nil
}

func (a *args) deleted(was bool) {
	if was {
		a.w.printf("deleted\n")
	} else {
		a.w.printf("nothing there\n")
	}
}

func remove(tx *engine.Txn, a *args) error {
	a.deleted(tx.Delete(a.word()))
	return nil
}

func deleteCAS(tx *engine.Txn, a *args) error {
	was, err := tx.CompareAndDelete(a.word(), a.number(a.word()))
	if err == nil {
		a.deleted(was)
	}
	return err
}

func deletePrefix(tx *engine.Txn, a *args) error {
	prefix := ""
	if a.more() {
		prefix = a.word()
	}
	a.w.printf("%d deleted\n", tx.DeletePrefix(prefix))
	return nil
}

func lock(tx *engine.Txn, a *args) error {
	row, err := tx.Lock(a.word(), idOf(a.word()), a.lockOptions())
	if err == nil {
		a.w.printf("%s\n", entry(row))
	}
	return err
}

func unlock(tx *engine.Txn, a *args) error {
	row, err := tx.Unlock(a.word(), idOf(a.word()))
	if err == nil {
		a.w.printf("%s\n", entry(row))
	}
	return err
}

func force(tx *engine.Txn, a *args) error {
	return tx.ForceUnlock(a.word(), a.number(a.text("fence")), a.text("reason"))
}

func prove(tx *engine.Txn, a *args) error {
	q := engine.Sequencer{Key: a.word(), Session: idOf(a.word())}
	q.LockIndex, q.Fence = a.number(a.text("lock")), a.number(a.text("fence"))
	q.Mode = a.mode()
	if err := tx.Proves(q); err != nil {
		return err
	}
	a.w.printf("proved\n")
	return nil
}

// has prints that a call got at once what it asked for.
func (a *args) has(h *handle) {
	a.w.printf("%s has %s%s\n", h.name, h.hold.Key,
		fields("lock", h.hold.LockIndex, "fence", h.hold.Fence))
}

func try(tx *engine.Txn, a *args) error {
	s, key := a.session(), a.word()
	h := a.handle(s, key)
	h.hold.SetMaxHold(a.duration(a.text("max")))
	err := tx.TryLock(&h.hold, s, key, a.lockOptions())
	if err == nil {
		a.has(h)
	}
	return err
}

// wait lets a call lock the keys at once if it can, and queue otherwise.
func wait(tx *engine.Txn, a *args) error {
	s := a.session()
	var keys []string
	for a.more() {
		keys = append(keys, a.word())
	}
	h := a.handle(s, keys...)
	h.holds = []*handle{h}
	if len(keys) > 1 {
		h.holds = nil
		for _, key := range keys {
			given := &handle{name: h.name + "/" + key}
			given.hold.Owner = given
			h.holds = append(h.holds, given)
		}
	}
	most := a.duration(a.text("max"))
	for _, given := range h.holds {
		given.hold.SetMaxHold(most)
	}
	opts := a.lockOptions()
	carried := a.carried()
	free, err := tx.Free(s, keys, opts.Mode, carried)
	switch {
	case err != nil:
		return err
	case !free:
		h.Session, h.Options, h.Carried = s, opts, carried
		return a.queue(tx, h, keys)
	}
	for i, key := range keys {
		tx.Hold(&h.holds[i].hold, s, key, opts)
		a.has(h.holds[i])
	}
	return nil
}

// carried are the locks that the context of the call carries: carries=(name, ...).
func (a *args) carried() (carried *engine.Carried) {
	for _, name := range a.list("carries") {
		carried = &engine.Carried{Owner: a.w.holds[name].Owner, Outer: carried}
	}
	return carried
}

func (a *args) queue(tx *engine.Txn, h *handle, keys []string) error {
	if err := tx.Wait(&h.Waiter, keys); err != nil {
		return err
	}
	for i := range h.holds {
		h.SetHold(i, &h.holds[i].hold)
	}
	a.w.waiters[h.name] = &h.Waiter
	a.w.printf("%s waits\n", h.name)
	return nil
}

func slot(tx *engine.Txn, a *args) error {
	s, prefix := a.session(), a.word()
	h := a.handle(s, prefix)
	err := tx.TryAcquire(&h.hold, s, prefix, int(a.number(a.text("limit"))))
	if err == nil {
		a.has(h)
	}
	return err
}

// waitSlot lets a call take a slot at once if it can, and queue otherwise.
func waitSlot(tx *engine.Txn, a *args) error {
	s, prefix := a.session(), a.word()
	h := a.handle(s, prefix)
	h.holds, h.Session, h.Slot, h.Carried = []*handle{h}, s, true, a.carried()
	h.Limit = int32(a.number(a.text("limit")))
	blocked, err := tx.Acquire(&h.hold, s, prefix, int(h.Limit))
	switch {
	case err != nil:
		return err
	case blocked != nil:
		return a.queue(tx, h, []string{prefix + engine.SemaphoreKey})
	default:
		a.has(h)
	}
	return nil
}

func limit(tx *engine.Txn, a *args) error {
	return tx.SetLimit(a.word(), int(a.number(a.word())))
}

// given returns the hold of the name.
func (a *args) given() *engine.Hold {
	a.w.t.Helper()
	hold := a.w.holds[a.word()]
	if hold == nil {
		a.w.t.Fatalf("%q: there is no hold of that name", a.line)
	}
	return hold
}

func release(tx *engine.Txn, a *args) error {
	tx.Release(a.given())
	return nil
}

// giveUp releases a lock that was granted to a call which has returned without it.
func giveUp(tx *engine.Txn, a *args) error {
	tx.GiveUp(a.given())
	return nil
}

// downgrade makes the exclusive hold of a lock a share.
func downgrade(tx *engine.Txn, a *args) error {
	name := a.word()
	hold := a.w.holds[name]
	if hold == nil {
		a.w.t.Fatalf("%q: there is no hold of that name", a.line)
	}
	h := &handle{name: name}
	h.hold.Owner = h
	if err := tx.Downgrade(hold, &h.hold); err != nil {
		return err
	}
	if h.hold.Session == nil {
		a.w.printf("shared already\n")
	} else {
		a.has(h)
	}
	return nil
}

func withdraw(tx *engine.Txn, a *args) error {
	name := a.word()
	waiter := a.w.waiters[name]
	if waiter == nil {
		a.w.t.Fatalf("%q: no call of that name waits", a.line)
	}
	delete(a.w.waiters, name)
	if blocked := tx.Withdraw(waiter); blocked != nil {
		a.w.printf("%s\n", a.w.problem(blocked))
	} else {
		a.w.printf("only a commit was in the way\n")
	}
	return nil
}

// dismiss ends all waits, as the end of a database does.
func dismiss(tx *engine.Txn, a *args) error {
	tx.DismissAll(engine.ErrClosed)
	return nil
}

func session(tx *engine.Txn, a *args) error {
	name := a.word()
	a.w.named[idOf(name).UUID()] = name
	_, err := tx.NewSession(schema.Session{
		ID: idOf(name), Name: name, Node: a.text("node"), Checks: a.list("checks"),
		TTL: a.duration(a.text("ttl")), Grace: a.duration(a.text("grace")),
		LockDelay: a.duration(a.text("delay")),
		Behavior:  a.choice("behavior", []string{"release", "delete"}),
		Lifetime:  a.choice("lifetime", []string{"process", "independent"}),
	})
	return err
}

func end(tx *engine.Txn, a *args) error {
	id, cause := idOf(a.word()), causes[a.text("cause")]
	s, err := tx.LiveSession(id)
	if err == nil {
		tx.EndSession(s, cause)
	}
	return err
}

// expire makes the session due now.
func expire(tx *engine.Txn, a *args) error {
	s, err := tx.LiveSession(idOf(a.word()))
	if err == nil {
		a.w.engine.Expire(s, tx.Time())
	}
	return err
}

func node(tx *engine.Txn, a *args) error {
	return tx.PutNode(schema.Node{Name: a.word(), ID: a.text("id"), Address: a.text("address")})
}

func deleteNode(tx *engine.Txn, a *args) error {
	a.deleted(tx.DeleteNode(a.word()))
	return nil
}

func service(tx *engine.Txn, a *args) error {
	row := schema.Service{Node: a.word(), ID: a.word(), Address: a.text("address")}
	row.Name = cmp.Or(a.text("name"), row.ID)
	return tx.PutService(row)
}

func deleteService(tx *engine.Txn, a *args) error {
	a.deleted(tx.DeleteService(a.word(), a.word()))
	return nil
}

func check(tx *engine.Txn, a *args) error {
	return tx.PutCheck(schema.Check{
		Node: a.word(), ID: a.word(), Status: a.choice("status", statuses),
		TTL: a.duration(a.text("ttl")), ServiceID: a.text("service"), Output: a.text("output"),
		Notes: a.text("notes"),
	})
}

func deleteCheck(tx *engine.Txn, a *args) error {
	a.deleted(tx.DeleteCheck(a.word(), a.word()))
	return nil
}

func attach(tx *engine.Txn, a *args) error {
	id := idOf(a.word())
	if id.IsZero() {
		return tx.AttachUnowned(a.word(), []byte(a.word()))
	}
	return tx.Attach(id, a.word(), []byte(a.word()))
}

func detach(tx *engine.Txn, a *args) error {
	a.deleted(tx.Detach(a.word()))
	return nil
}

// restore has the rows of a backup in its input, each as JSON: {"Keys":[{"Key":"k"}]}.
func restore(tx *engine.Txn, a *args) error {
	var backup store.Backup
	if err := json.Unmarshal([]byte(strings.Join(a.input, "\n")), &backup); err != nil {
		return fmt.Errorf("read backup: %w", err)
	}
	return tx.Restore(&backup)
}
