package consulapi

import (
	"strconv"

	"github.com/lockd/lockd/catalog"
)

// maintain puts or removes the check that says that a node or a service is not to be used (N10,
// N11). The check is critical, so no session can be bound to it (S18), unless it was registered
// with another status.
func (h *handler) maintain(r *request, c catalog.Check) (answer, error) {
	if !r.has("enable") {
		return answer{}, badRequest("Missing value for enable")
	}
	text := r.query.Get("enable")
	enable, err := strconv.ParseBool(text)
	if err != nil {
		return answer{}, badRequest("Invalid value for enable: %q", text)
	}
	return answer{}, h.update(func(tx *catalog.Txn) error {
		if c.ServiceID != "" {
			if _, exists := tx.Service(c.Node, c.ServiceID); !exists {
				return unknownService(c.ServiceID)
			}
		}
		if !enable {
			_, err := tx.DeleteCheck(c.Node, c.ID)
			return err
		}
		if _, exists := tx.Check(c.Node, c.ID); exists { // the first reason counts
			return nil
		}
		if c.Notes = r.query.Get("reason"); c.Notes == "" {
			kind := "node"
			if c.ServiceID != "" {
				kind = "service"
			}
			c.Notes = "Maintenance mode is enabled for this " + kind +
				", but no reason was provided. This is a default message."
		}
		return tx.PutCheck(c)
	})
}

func (h *handler) agentMaintenance(r *request) (answer, error) {
	return h.maintain(r, catalog.Check{
		Node: h.opts.Node, ID: nodeMaintenance, Name: "Node Maintenance Mode",
	})
}

func (h *handler) serviceMaintenance(r *request) (answer, error) {
	return h.maintain(r, catalog.Check{
		Node: h.opts.Node, ID: serviceMaintenance + r.rest,
		Name: "Service Maintenance Mode", ServiceID: r.rest,
	})
}
