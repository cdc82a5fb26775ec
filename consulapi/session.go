package consulapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// session is a session as it is in JSON (S1).
type session struct {
	ID   lockd.SessionID
	Name string
	Node string
	given
	CreateIndex uint64
	ModifyIndex uint64
}

func newSession(info lockd.SessionInfo) session {
	s := session{
		ID: info.ID, Name: info.Name, Node: info.Node,
		CreateIndex: info.CreateIndex, ModifyIndex: info.CreateIndex,
	}
	var made bool
	if s.given, made = givenOf(info); made {
		return s
	}
	// It was not made here.
	s.given = given{
		LockDelay: info.LockDelay, Behavior: info.Behavior.String(),
		NodeChecks: append([]string{}, info.Checks...),
	}
	if info.TTL > 0 {
		s.TTL = info.TTL.String()
	}
	return s
}

func (h *handler) sessionRoutes() map[string][]method {
	return map[string][]method{
		"session/create":   {{http.MethodPut, h.sessionCreate}},
		"session/destroy/": {{http.MethodPut, named("Missing session", h.sessionDestroy)}},
		"session/renew/":   {{http.MethodPut, h.sessionRenew}},
		"session/info/":    {{http.MethodGet, named("Missing session", h.sessionInfo)}},
		"session/node/":    {{http.MethodGet, named("Missing node name", h.sessionNode)}},
		"session/list":     {{http.MethodGet, h.sessionList}},
	}
}

// sessionBody is the body of a request for a session.
type sessionBody struct {
	Name          string
	Node          string
	LockDelay     lockDelay
	Behavior      string
	TTL           string
	Checks        []string
	NodeChecks    []string
	ServiceChecks []serviceCheck

	// A client may send these, and they are ignored.
	ID                       string
	CreateIndex, ModifyIndex uint64
}

func (h *handler) sessionCreate(r *request) (answer, error) {
	opts, err := h.sessionOptions(r)
	if err != nil {
		return answer{}, err
	}
	s, err := h.db.NewSession(opts)
	if (errors.Is(err, catalog.ErrNoNode) || errors.Is(err, catalog.ErrNoCheck)) &&
		sameName(opts.Node, h.opts.Node) && !h.registered() {
		// A restore, or a client, has removed the node or its check, but the process still runs.
		if err := h.register(); err != nil {
			return answer{}, err
		}
		s, err = h.db.NewSession(opts)
	}
	switch {
	case errors.Is(err, catalog.ErrNoNode): // S16
		return answer{}, reword(err, "apply failed: Missing node registration")
	case errors.Is(err, catalog.ErrNoCheck), errors.Is(err, catalog.ErrCheckCritical):
		return answer{}, h.badCheck(opts, err)
	case err != nil:
		return answer{}, err
	}
	return ok(object{{"ID", s.ID()}}), nil
}

// badCheck returns an error that names the check that the session cannot be bound to (S17, S18).
func (h *handler) badCheck(opts *lockd.SessionOptions, err error) error {
	state := h.db.Snapshot().Catalog()
	for _, id := range opts.Checks {
		check, exists := state.Check(opts.Node, id)
		switch {
		case !exists:
			return reword(err, "apply failed: Missing check '%s' registration", id)
		case check.Status == catalog.Critical:
			return reword(err, "apply failed: Check '%s' is in critical state", id)
		}
	}
	return reword(err, "apply failed: %v", err) // the check has recovered
}

// sessionOptions turns the body into options for the database, or refuses it, in the order in which
// Consul does (S4 to S18).
func (h *handler) sessionOptions(r *request) (*lockd.SessionOptions, error) {
	body := sessionBody{
		Node: h.opts.Node, LockDelay: lockDelay(lockd.DefaultLockDelay),
		Checks: []string{serfHealth}, NodeChecks: []string{serfHealth},
	}
	text, err := r.readBody(h.opts.MaxValueSize, "")
	if err != nil {
		return nil, err
	}
	// What follows the first value is ignored, and so are unknown members (S6).
	if len(text) > 0 {
		if err := json.NewDecoder(bytes.NewReader(text)).Decode(&body); err != nil {
			return nil, undecoded(err)
		}
	}
	if body.Node == "" {
		return nil, mistake("Must provide Node")
	}
	opts := &lockd.SessionOptions{
		Name: body.Name, Node: body.Node, LockDelay: body.LockDelay.option(),
		Lifetime: lockd.Independent,
	}
	switch body.Behavior {
	case "", lockd.ReleaseKeys.String():
	case lockd.DeleteKeys.String():
		opts.Behavior = lockd.DeleteKeys
	default:
		return nil, mistake("Invalid Behavior setting '%s'", body.Behavior)
	}
	if opts.TTL, err = h.parseTTL(body.TTL); err != nil {
		return nil, err
	}
	opts.Grace = time.Duration(h.opts.GraceTTLs) * opts.TTL
	g := given{
		LockDelay: time.Duration(body.LockDelay), Behavior: opts.Behavior.String(), TTL: body.TTL,
		NodeChecks: body.NodeChecks, ServiceChecks: body.ServiceChecks, Checks: body.Checks,
	}
	g.resolveChecks()
	g.keep(opts)
	return opts, nil
}

// parseTTL returns the TTL, zero for none, if it is within its bounds (S12 to S15).
func (h *handler) parseTTL(text string) (time.Duration, error) {
	if text == "" {
		return 0, nil
	}
	ttl, err := time.ParseDuration(text)
	switch {
	case err != nil:
		return 0, mistake("Session TTL '%s' invalid: %v", text, err)
	case ttl != 0 && (ttl < h.opts.MinTTL || ttl > maxTTL):
		return 0, mistake("Invalid Session TTL '%d', must be between [%v=%v]", ttl, h.opts.MinTTL,
			maxTTL)
	}
	return ttl, nil
}

// lockDelay is a lock-delay as a client sends it. A number below 1,000 is in seconds, any other in
// nanoseconds; a text has its unit (S21, X6).
type lockDelay time.Duration

// UnmarshalJSON reads a lock-delay. null means the default, and so leaves d as it is.
func (d *lockDelay) UnmarshalJSON(text []byte) error {
	if string(text) == "null" {
		return nil
	}
	delay, err := parseLockDelay(text)
	if err == nil && delay < 0 {
		err = errors.New("it is below 0")
	}
	if err != nil {
		return fmt.Errorf("LockDelay %s: %w", text, err)
	}
	*d = lockDelay(delay)
	return nil
}

func parseLockDelay(text []byte) (time.Duration, error) {
	var value any
	if err := json.Unmarshal(text, &value); err != nil {
		return 0, err
	}
	switch value := value.(type) {
	case string:
		return time.ParseDuration(value)
	case float64:
		switch {
		case value < 0:
			return -1, nil
		case value >= 1<<63:
			return 0, errors.New("it is too long")
		case value < 1000:
			return time.Duration(value) * time.Second, nil
		}
		return time.Duration(value), nil
	}
	return 0, errors.New("it is neither a number nor a text")
}

// option returns the lock-delay for the database. A delay above the limit is silently capped, as in
// Consul (S22), and a delay between 0 and a millisecond becomes one.
func (d lockDelay) option() time.Duration {
	if d == 0 {
		return lockd.NoLockDelay
	}
	return min(max(time.Duration(d), lockd.MinTTL), lockd.MaxLockDelay)
}

func (h *handler) sessionDestroy(r *request) (answer, error) {
	err := h.db.EndSession(sessionID(r.rest))
	if errors.Is(err, lockd.ErrNoSession) { // S35
		err = nil
	}
	return done(err, nil)
}

func (h *handler) sessionRenew(r *request) (answer, error) {
	if err := r.parseBlocking(); err != nil { // bad parameters are refused here too
		return answer{}, err
	}
	if r.rest == "" {
		return answer{}, badRequest("Missing session")
	}
	id := sessionID(r.rest)
	// Neither call waits for the function of an Update or for a commit, other than that of the
	// session's own end (S26). They do not find a session whose creation is not durable yet: no
	// client has been told its ID, so none misses it (G3).
	err := h.db.Renew(id)
	info, exists := h.db.SessionInfo(id)
	if errors.Is(err, lockd.ErrNoSession) || err == nil && !exists { // S24; or it has ended since
		return answer{}, refuse(http.StatusNotFound, "Session id '%s' not found", r.rest)
	}
	if err != nil {
		return answer{}, err
	}
	return ok([]session{newSession(info)}), nil
}

func (h *handler) sessionInfo(r *request) (answer, error) {
	id := sessionID(r.rest)
	return h.read(r, lockd.SessionScope(id), func(state *lockd.Snapshot) answer {
		info, exists := state.Session(id)
		sessions := listOf[session]()
		if exists {
			sessions = listOf(newSession(info))
		}
		return answer{value: sessions}
	})
}

func (h *handler) sessionNode(r *request) (answer, error) {
	return h.sessions(r, func(info lockd.SessionInfo) bool { return sameName(info.Node, r.rest) })
}

func (h *handler) sessionList(r *request) (answer, error) {
	return h.sessions(r, all)
}

// sessions answers with the sessions that are wanted, in the order of their IDs (S2).
func (h *handler) sessions(r *request, wanted func(lockd.SessionInfo) bool) (answer, error) {
	return h.read(r, lockd.SessionsScope(), func(state *lockd.Snapshot) answer {
		return answer{value: listed(state.Sessions(), wanted, newSession)}
	})
}

// sessionID parses an ID in upper or lower case (X20). The empty text gives the zero ID. Any other
// invalid text gives an ID that no session ever has, so that it is refused where an unknown session
// is.
func sessionID(given string) (id lockd.SessionID) {
	if given == "" {
		return id
	}
	if id, err := lockd.ParseSessionID(given); err == nil {
		return id
	}
	for i := range id {
		id[i] = 0xff
	}
	return id
}
