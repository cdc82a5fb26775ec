package consulapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"iter"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// preparedQuery is a prepared query in JSON. It is kept as an attachment of its session, and dies
// with it, or as one of no session.
type preparedQuery struct {
	ID       string
	Name     string
	Session  string
	Token    string
	Template struct {
		Type, Regexp    string
		RemoveEmptyTags bool
	}
	Service struct {
		Service  string
		Failover struct {
			NearestN    int
			Datacenters []string
		}
		OnlyPassing    bool
		IgnoreCheckIDs []string
		Near           string
		Tags           []string
		NodeMeta       map[string]string
		ServiceMeta    map[string]string
		Connect        bool
	}
	DNS struct{ TTL string }

	CreateIndex uint64 // 0 until a change of the query, which may attach it to another session
	ModifyIndex uint64 // the attachment's
}

// queryPrefix begins the names of the attachments that are queries; an ID follows.
const queryPrefix = "consul.query/"

func (h *handler) queryRoutes() map[string][]method {
	return map[string][]method{
		"query": {{http.MethodGet, h.queryList}, {http.MethodPost, h.queryCreate}},
		"query/": {
			{http.MethodGet, h.queryGet},
			{http.MethodPut, h.queryUpdate},
			{http.MethodDelete, h.queryDelete},
		},
		"query//execute": {{http.MethodGet, h.queryExecute}},
	}
}

var errNoQuery = refuse(http.StatusNotFound, "Query not found")

// attachmentOf returns the name of the attachment for a query's ID, in upper or lower case.
func attachmentOf(id string) string { return queryPrefix + folded(id) }

// noSuchQuery is what Consul says to a request to change or delete a query that is not there.
func noSuchQuery(id string) error {
	return mistake("Cannot modify non-existent prepared query: '%s'", id)
}

// queryOf returns the query that an attachment holds, and whether it holds one: the program may
// have attachments of its own with such names.
func queryOf(a catalog.Attachment) (q preparedQuery, is bool) {
	if json.Unmarshal(a.Value, &q) != nil || attachmentOf(q.ID) != a.Name {
		return preparedQuery{}, false
	}
	q.CreateIndex, q.ModifyIndex = cmp.Or(q.CreateIndex, a.CreateIndex), a.ModifyIndex
	return q, true
}

// queriesIn yields the queries that the attachments hold.
func queriesIn(attachments iter.Seq[catalog.Attachment]) iter.Seq[preparedQuery] {
	return func(yield func(preparedQuery) bool) {
		for a := range attachments {
			if q, is := queryOf(a); is && !yield(q) {
				return
			}
		}
	}
}

// readQuery reads a query from the body.
func (h *handler) readQuery(r *request) (q preparedQuery, err error) {
	if err := h.decode(r, &q); err != nil {
		return q, err
	}
	if id, err := lockd.ParseSessionID(q.Session); err == nil {
		q.Session = id.String() // in one form (X20)
	}
	q.CreateIndex, q.ModifyIndex = 0, 0
	return q, nil
}

// valid refuses a query that has neither a name to be found by nor a session to die with, and a
// query that cannot be executed.
func (q *preparedQuery) valid() error {
	const invalid = "Invalid prepared query: "
	switch {
	case q.Template.Type != "":
		return badRequest("lockd has no templates of queries")
	case q.Name == "" && q.Session == "":
		return mistake(invalid + "Must be bound to a session")
	case q.Service.Service == "":
		return mistake(invalid + "Must provide a Service name to query")
	case q.Service.Failover.NearestN < 0:
		return mistake(invalid+"Bad NearestN '%d', must be >= 0", q.Service.Failover.NearestN)
	case q.DNS.TTL == "":
		return nil
	}
	switch ttl, err := time.ParseDuration(q.DNS.TTL); {
	case err != nil:
		return mistake(invalid+"Bad DNS TTL '%s': %v", q.DNS.TTL, err)
	case ttl < 0:
		return mistake(invalid+"DNS TTL '%d', must be >=0", ttl)
	}
	return nil
}

// keep stores the query, if it is valid, in place of any query with the same ID.
func (q *preparedQuery) keep(tx *catalog.Txn) error {
	if err := q.valid(); err != nil {
		return err
	}
	for other := range queriesIn(tx.Attachments(queryPrefix)) {
		switch {
		case q.Name == "":
		case sameName(q.Name, other.Name) && q.ID != other.ID:
			return mistake("raft apply failed: name '%s' aliases an existing query name", q.Name)
		case sameName(q.Name, other.ID): // a request for one of them would get the other
			return mistake("raft apply failed: name '%s' aliases an existing query ID", q.Name)
		}
	}
	if old, exists := tx.Attachment(attachmentOf(q.ID)); exists &&
		old.Session != sessionID(q.Session) {
		if _, err := tx.Detach(old.Name); err != nil {
			return err
		}
	}
	if q.Session == "" {
		return tx.AttachUnowned(attachmentOf(q.ID), marshal(q))
	}
	err := tx.Attach(sessionID(q.Session), attachmentOf(q.ID), marshal(q))
	if errors.Is(err, lockd.ErrNoSession) {
		return reword(err, "raft apply failed: invalid session %q", q.Session)
	}
	return err
}

func (h *handler) queryCreate(r *request) (answer, error) {
	q, err := h.readQuery(r)
	if err != nil {
		return answer{}, err
	}
	if q.ID != "" {
		return answer{}, mistake("ID must be empty when creating a new prepared query")
	}
	q.ID = uuid.NewString()
	if err := h.db.Update(func(tx *lockd.Txn) error { return q.keep(tx.Catalog()) }); err != nil {
		return answer{}, err
	}
	return ok(object{{"ID", q.ID}}), nil
}

func (h *handler) queryUpdate(r *request) (answer, error) {
	q, err := h.readQuery(r)
	if err != nil {
		return answer{}, err
	}
	q.ID = folded(r.rest)
	return answer{}, h.db.Update(func(tx *lockd.Txn) error {
		a, _ := tx.Catalog().Attachment(attachmentOf(q.ID))
		old, exists := queryOf(a)
		if !exists {
			return noSuchQuery(r.rest)
		}
		q.CreateIndex = old.CreateIndex
		return q.keep(tx.Catalog())
	})
}

func (h *handler) queryDelete(r *request) (answer, error) {
	return answer{}, h.db.Update(func(tx *lockd.Txn) error {
		a, _ := tx.Catalog().Attachment(attachmentOf(r.rest))
		if _, exists := queryOf(a); !exists {
			return noSuchQuery(r.rest)
		}
		_, err := tx.Catalog().Detach(a.Name)
		return err
	})
}

func (h *handler) queryList(r *request) (answer, error) {
	return h.readCatalog(r, func(state *catalog.Snapshot) any {
		return list[preparedQuery](queriesIn(state.Attachments(queryPrefix)))
	})
}

func (h *handler) queryGet(r *request) (answer, error) {
	find := func(state *lockd.Snapshot) (preparedQuery, bool) {
		a, _ := state.Catalog().Attachment(attachmentOf(r.rest))
		return queryOf(a)
	}
	if _, exists := find(h.db.Snapshot()); !exists {
		r.index = 0 // there is nothing to wait for
	}
	return h.read(r, lockd.CatalogScope(), func(state *lockd.Snapshot) answer {
		q, exists := find(state)
		if !exists {
			return failed(errNoQuery)
		}
		return answer{value: []preparedQuery{q}, header: r.consistencyHeader()}
	})
}

// queryExecute answers with the healthy instances of the service, in a random order. The query is
// named by its ID or its name.
func (h *handler) queryExecute(r *request) (answer, error) {
	limit := 0
	if text := r.query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil {
			return answer{}, mistake("Bad limit: %v", err)
		}
	}
	state := h.db.Snapshot().Catalog()
	var q preparedQuery
	for other := range queriesIn(state.Attachments(queryPrefix)) {
		if r.rest != "" && (sameName(other.ID, r.rest) || sameName(other.Name, r.rest)) {
			q = other
		}
	}
	if q.ID == "" {
		return answer{}, errNoQuery
	}
	found := q.healthy(state)
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	if limit > 0 && limit < len(found) {
		found = found[:limit]
	}
	instances := checkedOf(state, services(state, found), nil) // ignored checks are shown too
	return answer{header: r.consistencyHeader(), value: append(object{
		{"Service", q.Service.Service}, {"Nodes", listed(instances, all, h.newInstance)},
		{"DNS", q.DNS}, {"Datacenter", h.opts.Datacenter}, {"Failovers", 0},
	}, readMembers(1, true, r.consistency)...)}.asRead(), nil
}

// place is where a service is in the catalog.
type place struct{ node, id string }

// services yields the services at the places, each with its node.
func services(
	state *catalog.Snapshot, at []place,
) iter.Seq2[catalog.Node, catalog.Service] {
	return func(yield func(catalog.Node, catalog.Service) bool) {
		for _, p := range at {
			n, _ := state.Node(p.node)
			s, _ := state.Service(p.node, p.id)
			if !yield(n, s) {
				return
			}
		}
	}
}

// healthy returns the instances that the query finds: those that are not critical, or only those
// that pass, if the query wants that.
func (q *preparedQuery) healthy(state *catalog.Snapshot) (found []place) {
	worst := catalog.Warning
	if q.Service.OnlyPassing {
		worst = catalog.Passing
	}
	all := instances(state, q.Service.Service, nil)
	for c := range checkedOf(state, all, q.Service.IgnoreCheckIDs) {
		if c.health() >= worst && q.wants(c.node, c.service) {
			found = append(found, place{c.service.Node, c.service.ID})
		}
	}
	return found
}

// wants reports whether the service has the tags that the query names, none of the tags that it
// names with a "!", and the Meta that it wants of the node and the service.
func (q *preparedQuery) wants(n catalog.Node, s catalog.Service) bool {
	for _, tag := range q.Service.Tags {
		name, negated := strings.CutPrefix(tag, "!")
		if hasTags(s, []string{name}) == negated {
			return false
		}
	}
	return hasMeta(n.Meta, q.Service.NodeMeta) && hasMeta(s.Meta, q.Service.ServiceMeta)
}
