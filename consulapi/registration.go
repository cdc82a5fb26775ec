package consulapi

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/lockd/lockd/catalog"
)

// registration is the body of a request to register a node, a service and checks (N1).
type registration struct {
	ID, Node, Address string
	NodeMeta          map[string]string
	Service           *sentService
	Check             *sentCheck
	Checks            []sentCheck
	TaggedAddresses   map[string]string
	SkipNodeUpdate    bool

	CreateIndex, ModifyIndex uint64 // ignored: a client cannot choose them
	elsewhere
}

// sentService is a service as it is registered.
type sentService struct {
	ID, Service, Address string
	Port                 int
	Tags                 []string
	Meta                 map[string]string
	TaggedAddresses      map[string]serviceAddress

	ModifyIndex uint64 // what cas and delete-cas compare; a registration ignores it
	unkept
}

// sentCheck is a check as it is registered.
type sentCheck struct {
	Node, CheckID, Name, Status, Notes, Output, ServiceID string

	Type, Interval, Timeout string // which are shown, and mean nothing

	Definition  definition
	ModifyIndex uint64 // what cas and delete-cas compare; a registration ignores it
	unkept
}

// definition is the Definition of a check, kept as it was sent, but for null and empty members.
type definition map[string]any

// UnmarshalJSON refuses a definition that Consul's official client cannot decode: the client could
// read no list that has such a check. It cannot decode an empty interval either, so UnmarshalJSON
// drops empty members.
func (d *definition) UnmarshalJSON(text []byte) error {
	var typed struct {
		HTTP, Method, Body, TLSServerName, TCP, UDP, GRPC, OSService, SessionName string

		Header                               map[string][]string
		TLSSkipVerify, TCPUseTLS, GRPCUseTLS bool

		Interval, Timeout, DeregisterCriticalServiceAfter interval

		// Other names for the same, which the client never sends, but reads.
		IntervalDuration, TimeoutDuration, DeregisterCriticalServiceAfterDuration interval
	}
	if err := json.Unmarshal(text, &typed); err != nil {
		return err
	}
	if err := json.Unmarshal(text, (*map[string]any)(d)); err != nil {
		return err
	}
	maps.DeleteFunc(*d, func(_ string, value any) bool { return value == nil || value == "" })
	return nil
}

// unkept has the members that Consul's own client sends and lockd does not keep. A registration
// refuses Namespace and Partition. Any other unknown member is a mistake (T2).
type unkept struct {
	CreateIndex, Datacenter, Namespace, Partition, PeerName, Locality,
	Kind, SocketPath, Weights, EnableTagOverride, ContentHash, Proxy, Connect, Ports,
	ServiceName, ServiceTags, ExposedPort json.RawMessage
}

// elsewhere has the members that say where a request is for, and its token.
type elsewhere struct {
	Datacenter                            string
	Namespace, Partition, Token, PeerName json.RawMessage
	Locality, WriteRequest                json.RawMessage
}

// refusePlace refuses a namespace or a partition in a body, as checkPlace does in a query.
func refusePlace(given ...json.RawMessage) error {
	for _, text := range given {
		if s := string(text); s != "" && s != `""` && s != "null" {
			return badRequest("Namespaces and Partitions are a Consul Enterprise feature")
		}
	}
	return nil
}

// places returns the namespaces and partitions that the body names, for all or for a part of it.
func (b *registration) places() []json.RawMessage {
	named := []json.RawMessage{b.Namespace, b.Partition}
	if b.Service != nil {
		named = append(named, b.Service.Namespace, b.Service.Partition)
	}
	for _, c := range b.checks() {
		named = append(named, c.Namespace, c.Partition)
	}
	return named
}

func (h *handler) checkRegistration(body *registration) error {
	if err := refusePlace(body.places()...); err != nil {
		return err
	}
	if err := checkDatacenter(body.Datacenter, h.opts.Datacenter); err != nil {
		return err
	}
	switch {
	case body.Node == "":
		return mistake("Must provide node")
	case body.Address == "" && !body.SkipNodeUpdate:
		return mistake("Must provide address if SkipNodeUpdate is not set")
	case body.ID != "" && uuid.Validate(body.ID) != nil:
		return mistake("Bad node ID: %v", uuid.Validate(body.ID))
	}
	if body.Service != nil {
		if err := body.Service.valid(); err != nil {
			return err
		}
	}
	for _, c := range body.checks() {
		if _, err := parseStatus(c.Status); err != nil {
			return badRequest("%v", err)
		}
		if c.Node != "" && !sameName(c.Node, body.Node) {
			return mistake("Node '%s' for check '%s' doesn't match register request node '%s'",
				c.Node, c.id(), body.Node)
		}
	}
	return nil
}

// canonicalID returns the ID of a node in its one form, by which nodes are told apart (N5). A text
// that is no UUID stays as it is: the program may have put it.
func canonicalID(text string) string {
	if id, err := uuid.Parse(text); err == nil {
		return id.String()
	}
	return text
}

// sameID reports whether two texts are the ID of one node.
func sameID(a, b string) bool { return sameName(canonicalID(a), canonicalID(b)) }

// checks returns all checks of the registration.
func (b *registration) checks() []sentCheck {
	if b.Check == nil {
		return b.Checks
	}
	return append(slices.Clone(b.Checks), *b.Check)
}

// apply registers the node, by putNode, the service and the checks.
func (b *registration) apply(
	tx *catalog.Txn, putNode func(*catalog.Txn, catalog.Node) error,
) error {
	n, exists := tx.Node(b.Node)
	if !exists || !b.SkipNodeUpdate {
		n.Name, n.Address = b.Node, b.Address
		n.Meta = hide(b.NodeMeta, taggedKey, b.TaggedAddresses)
		n.ID = cmp.Or(canonicalID(b.ID), n.ID)
		if err := putNode(tx, n); err != nil {
			return err
		}
	}
	if s := b.Service; s != nil {
		if err := s.put(tx, n.Name); err != nil {
			return err
		}
	}
	for _, c := range b.checks() {
		if err := c.put(tx, n.Name); err != nil {
			return err
		}
	}
	return nil
}

// valid refuses a service without a name, and one that no client can reach.
func (s *sentService) valid() error {
	switch {
	case s.Service == "" && s.ID != "":
		return mistake("Must provide service name with ID")
	case s.Service == "":
		return mistake("Must provide service name")
	case isAnyAddress(s.Address):
		return mistake("Invalid service address")
	}
	return nil
}

// id returns the ID of the service, which is its name if no ID was sent.
func (s *sentService) id() string { return cmp.Or(s.ID, s.Service) }

// put registers the service on the node.
func (s *sentService) put(tx *catalog.Txn, node string) error {
	return tx.PutService(catalog.Service{
		Node: node, ID: s.id(), Name: s.Service, Address: s.Address, Port: s.Port, Tags: s.Tags,
		Meta: hide(s.Meta, taggedKey, s.TaggedAddresses),
	})
}

// id returns the ID of the check, which is its name if no ID was sent.
func (c *sentCheck) id() string { return cmp.Or(c.CheckID, c.Name) }

// put registers the check, on node if the check names none itself (N2).
func (c *sentCheck) put(tx *catalog.Txn, node string) error {
	id := c.id()
	if id == "" {
		return mistake("Must provide check ID or name")
	}
	next, _ := tx.Check(cmp.Or(c.Node, node), id) // its TTL, and what else it has, stays
	next.Node, next.ID, next.Name = cmp.Or(c.Node, node), id, c.Name
	next.Notes, next.Output, next.ServiceID = c.Notes, c.Output, c.ServiceID
	var err error
	if next.Status, err = parseStatus(c.Status); err != nil {
		return err
	}
	next.Meta = hide(next.Meta, definitionKey, c.Definition)
	shown := map[string]string{"Type": c.Type, "Interval": c.Interval, "Timeout": c.Timeout}
	maps.DeleteFunc(shown, func(_, text string) bool { return text == "" })
	next.Meta = hide(next.Meta, checkKey, shown)
	err = tx.PutCheck(next)
	switch {
	case errors.Is(err, catalog.ErrNoNode):
		return reword(err, "Missing node registration")
	case errors.Is(err, catalog.ErrNoService):
		return reword(err, "Unknown service ID '%s' for check ID '%s'", c.ServiceID, id)
	}
	return err
}
