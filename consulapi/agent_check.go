package consulapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// agentCheck is a check as a client asks the agent to keep it (N6).
type agentCheck struct {
	ID, CheckID, Name, Notes, ServiceID, Status string

	TTL interval

	Service string `json:"service_id"` // ServiceID, as files of the agent spell it

	// These mean nothing for a TTL check, but must be valid, and Interval must not be above 0.
	Interval, Timeout, DeregisterCriticalServiceAfter interval

	shown map[string]string // Interval and Timeout; nil if it is registered with its service

	// Probes that Consul's agent would run. lockd refuses them.
	HTTP, TCP, UDP, GRPC, Shell, DockerContainerID, AliasNode, AliasService, H2PING string
	OSService                                                                       string
	Args, ScriptArgs                                                                []string
}

// interval is a duration as it is sent: a text with its unit, or a number of nanoseconds, also one
// with a fraction or an exponent.
type interval time.Duration

// UnmarshalJSON reads an interval. An empty text and null leave d unchanged.
func (d *interval) UnmarshalJSON(text []byte) error {
	var value string
	if json.Unmarshal(text, &value) != nil {
		var number float64
		err := json.Unmarshal(text, &number)
		if err == nil && (number >= 1<<63 || number < -1<<63) {
			err = fmt.Errorf("the duration %s is too long", text)
		}
		*d = interval(number)
		return err
	}
	if value == "" {
		return nil
	}
	parsed, err := time.ParseDuration(value)
	*d = interval(parsed)
	return err
}

// valid refuses a check that lockd cannot keep. The status is for the caller to check.
func (c *agentCheck) valid() error {
	probe := cmp.Or(c.HTTP, c.TCP, c.UDP, c.GRPC, c.Shell, c.DockerContainerID, c.AliasNode,
		c.AliasService, c.H2PING, c.OSService)
	switch {
	case c.Interval > 0 && c.TTL > 0:
		return badRequest("Invalid check: Interval and TTL cannot both be specified")
	case probe != "" || len(c.Args)+len(c.ScriptArgs) > 0:
		return badRequest("Invalid check: lockd keeps TTL checks only, and runs no probes")
	case c.TTL <= 0:
		return badRequest("Invalid check: TTL must be > 0 for TTL checks")
	case time.Duration(c.TTL) < lockd.MinTTL: // the database's text is for programs in Go
		return badRequest("Invalid check: TTL %v is below %v: was a unit forgotten?",
			time.Duration(c.TTL), lockd.MinTTL)
	case sameName(c.id(), serfHealth): // a lapse would end all default sessions
		return badRequest("Invalid check: serfHealth is the node's own")
	}
	return nil
}

// id returns the ID of the check, which is its name if no ID was sent.
func (c *agentCheck) id() string { return cmp.Or(c.ID, c.CheckID, c.Name) }

// put registers the check on the node. A check that exists already keeps its status and output, so
// that registering it again ends no session.
func (c *agentCheck) put(tx *catalog.Txn, node string) error {
	if c.ServiceID != "" {
		if _, exists := tx.Service(node, c.ServiceID); !exists {
			return refuse(http.StatusNotFound, "ServiceID %q does not exist", c.ServiceID)
		}
	}
	next, exists := tx.Check(node, c.id())
	if !exists {
		status, err := parseStatus(c.Status)
		if err != nil {
			return err
		}
		next.Status = status
	}
	next.Node, next.ID, next.Name, next.Notes = node, c.id(), c.Name, c.Notes
	next.ServiceID, next.TTL = c.ServiceID, time.Duration(c.TTL)
	next.Meta = hide(next.Meta, checkKey, c.shown)
	return tx.PutCheck(next)
}

func (h *handler) checkRegister(r *request) (answer, error) {
	var body agentCheck
	if err := h.decode(r, &body); err != nil {
		return answer{}, err
	}
	body.ServiceID = cmp.Or(body.ServiceID, body.Service)
	if body.Name == "" {
		return answer{}, badRequest("Missing check name")
	}
	if _, err := parseStatus(body.Status); err != nil {
		return answer{}, badRequest("Bad check status")
	}
	if err := body.valid(); err != nil {
		return answer{}, err
	}
	body.shown = map[string]string{
		"Interval": time.Duration(body.Interval).String(),
		"Timeout":  time.Duration(body.Timeout).String(),
	}
	return answer{}, h.update(func(tx *catalog.Txn) error { return body.put(tx, h.opts.Node) })
}

func unknownCheck(id string) error {
	return refuse(http.StatusNotFound,
		"Unknown check ID %q. Ensure that the check ID is passed, not the check name.", id)
}

func (h *handler) checkDeregister(r *request) (answer, error) {
	if sameName(r.rest, serfHealth) { // the agent does not have it
		return answer{}, unknownCheck(r.rest)
	}
	return answer{}, h.db.Update(func(tx *lockd.Txn) error {
		deleted, err := tx.Catalog().DeleteCheck(h.opts.Node, r.rest)
		if err == nil && !deleted {
			err = unknownCheck(r.rest)
		}
		return err
	})
}

// checkSet returns the endpoint that sets the status of a check.
func (h *handler) checkSet(status catalog.Status) endpoint {
	return func(r *request) (answer, error) { return h.setCheck(r, status, r.query.Get("note")) }
}

func (h *handler) checkUpdate(r *request) (answer, error) {
	var body struct{ Status, Output string }
	if err := h.decode(r, &body); err != nil {
		return answer{}, err
	}
	status, err := parseStatus(body.Status)
	if err != nil || body.Status == "" {
		return answer{}, badRequest("Invalid check status: '%s'", body.Status)
	}
	return h.setCheck(r, status, body.Output)
}

// setCheck sets the status of a TTL check, and its TTL begins anew (N7). If the status is critical,
// the sessions that are bound to the check have ended before the answer.
func (h *handler) setCheck(r *request, status catalog.Status, output string) (answer, error) {
	return answer{}, h.db.Update(func(tx *lockd.Txn) error {
		c, _ := tx.Catalog().Check(h.opts.Node, r.rest)
		if c.TTL == 0 { // or there is none
			return unknownCheck(r.rest)
		}
		c.Status, c.Output = status, output
		return tx.Catalog().PutCheck(c)
	})
}

func (h *handler) agentChecks(r *request) (answer, error) {
	if err := r.refuseFilter(); err != nil {
		return answer{}, err
	}
	state := h.db.Snapshot().Catalog()
	return ok(mapping[check](func(yield func(string, check) bool) {
		for id := range inOrder(state.Checks(h.opts.Node),
			func(c catalog.Check) string { return c.ID },
		) {
			c, _ := state.Check(h.opts.Node, id)
			of, _ := state.Service(c.Node, c.ServiceID)
			if !sameName(id, serfHealth) && !yield(id, newCheck(c, of)) {
				return
			}
		}
	})), nil
}
