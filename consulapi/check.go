package consulapi

import (
	"cmp"
	"encoding/json"
	"net/http"
	"strings"

	"github.com/lockd/lockd/catalog"
)

// check is a check as it is in JSON (T15).
type check struct {
	Node        string
	CheckID     string
	Name        string
	Status      string
	Notes       string
	Output      string
	ServiceID   string
	ServiceName string
	ServiceTags []string
	Type        string
	Interval    string
	Timeout     string
	ExposedPort int
	Definition  json.RawMessage
	CreateIndex uint64
	ModifyIndex uint64
}

// nodeMaintenance is the ID of the check that says that the node is not to be used. The check that
// says so of a service has an ID of serviceMaintenance and the service's ID.
const (
	nodeMaintenance    = "_node_maintenance"
	serviceMaintenance = "_service_maintenance:"
)

// isMaintenance reports whether the ID is that of a check for maintenance.
func isMaintenance(id string) bool {
	return id == nodeMaintenance || strings.HasPrefix(id, serviceMaintenance)
}

// newCheck shows a check, with the name and tags of its service.
func newCheck(c catalog.Check, of catalog.Service) check {
	definition := c.Meta[definitionKey]
	if hidden[any](c.Meta, definitionKey) == nil {
		definition = "{}"
	}
	sent := hidden[string](c.Meta, checkKey)
	kind := cmp.Or(sent["Type"], checkType(definition))
	switch {
	case c.TTL > 0:
		kind = "ttl"
	case isMaintenance(c.ID):
		kind = "maintenance"
	}
	return check{
		Node: c.Node, CheckID: c.ID, Name: c.Name, Status: c.Status.String(), Notes: c.Notes,
		Output: c.Output, ServiceID: c.ServiceID, ServiceName: of.Name,
		ServiceTags: append([]string{}, of.Tags...),
		Type:        kind, Interval: sent["Interval"], Timeout: sent["Timeout"],
		Definition:  json.RawMessage(definition),
		CreateIndex: c.CreateIndex, ModifyIndex: c.ModifyIndex,
	}
}

// checkType returns the kind of check that a definition describes, or an empty text.
func checkType(definition string) string {
	var sent struct {
		HTTP, TCP, UDP, GRPC, H2PING, AliasNode, AliasService, DockerContainerID string

		ScriptArgs    []string
		Interval, TTL interval
	}
	if json.Unmarshal([]byte(definition), &sent) != nil {
		return ""
	}
	repeated, runs := sent.Interval > 0, len(sent.ScriptArgs) > 0
	switch {
	case repeated && sent.GRPC != "":
		return "grpc"
	case repeated && sent.HTTP != "":
		return "http"
	case sent.TTL > 0:
		return "ttl"
	case repeated && sent.TCP != "":
		return "tcp"
	case repeated && sent.UDP != "":
		return "udp"
	case sent.AliasNode != "" || sent.AliasService != "":
		return "alias"
	case repeated && runs && sent.DockerContainerID != "":
		return "docker"
	case runs:
		return "script"
	case repeated && sent.H2PING != "":
		return "h2ping"
	}
	return ""
}

// parseStatus returns the status that the text names; an empty text means critical (N2).
func parseStatus(text string) (catalog.Status, error) {
	if text == "" {
		return catalog.Critical, nil
	}
	for _, status := range []catalog.Status{catalog.Critical, catalog.Warning, catalog.Passing} {
		if text == status.String() {
			return status, nil
		}
	}
	return 0, refuse(http.StatusBadRequest, "Invalid check status %q", text)
}
