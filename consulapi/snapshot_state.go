package consulapi

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/lockd/lockd"
	"github.com/lockd/lockd/catalog"
)

// The state in a Consul snapshot is a header and then records, each a byte for its kind and an
// object. The kinds below are written and read; all others are skipped.
const (
	recordRegistration = 0 // of a node, and of a service or a check on it
	recordKey          = 2
)

// Fields that Consul lacks are members of lockd's own, which Consul skips.
const (
	memberTTL  = "LockdTTL"  // of a check, in nanoseconds
	memberMeta = "LockdMeta" // of a check; of a service, if Consul takes only a part of its Meta
	memberID   = "LockdID"   // of a node, if it is no UUID
)

// These are the rules that Consul has for the Meta of a service. A server that restores a snapshot
// with any other Meta stops.
const (
	mostMeta      = 64
	mostMetaValue = 512
	reservedMeta  = "consul-" // which begins the keys that Consul keeps to itself
)

var metaName = regexp.MustCompile("^[a-zA-Z0-9_-]{1,128}$")

// takenMeta returns the part of a service's Meta that Consul takes.
func takenMeta(meta map[string]string) map[string]string {
	taken := maps.Clone(meta)
	maps.DeleteFunc(taken, func(key, value string) bool {
		return !metaName.MatchString(key) || strings.HasPrefix(key, reservedMeta) ||
			len(value) > mostMetaValue
	})
	names := slices.Sorted(maps.Keys(taken))
	for _, key := range names[min(mostMeta, len(names)):] {
		delete(taken, key)
	}
	return taken
}

// stateWriter writes records, and keeps the first error.
type stateWriter struct {
	to         *bufio.Writer
	datacenter string
	buffer     []byte
	err        error
}

// writeState writes what a restore brings back: the nodes with their services and checks, and the
// keys. Sessions and locks are not part of it.
func writeState(w io.Writer, state *lockd.Snapshot, datacenter string) error {
	s := &stateWriter{to: bufio.NewWriter(w), datacenter: datacenter}
	s.write(appendPacked(nil, object{{"LastIndex", state.Index()}}))
	nodes := state.Catalog()
	for n := range nodes.Nodes() {
		s.register(n)
		for service := range nodes.Services(n.Name) {
			s.register(n, field{"Service", packService(service)})
		}
		for check := range nodes.Checks(n.Name) {
			s.register(n, field{"Check", packCheck(check)})
		}
		if s.err != nil {
			return s.err
		}
	}
	for key, e := range state.Prefix("") {
		s.record(recordKey, object{
			{"Key", key}, {"Value", e.Value}, {"Flags", e.Flags}, {"LockIndex", e.LockIndex},
			{"Session", ""}, {"CreateIndex", e.CreateIndex}, {"ModifyIndex", e.ModifyIndex},
		})
		if s.err != nil {
			return s.err
		}
	}
	return cmp.Or(s.err, s.to.Flush())
}

func (s *stateWriter) write(b []byte) {
	if s.err == nil {
		_, s.err = s.to.Write(b)
	}
}

func (s *stateWriter) record(kind byte, o object) {
	s.buffer = appendPacked(append(s.buffer[:0], kind), o)
	s.write(s.buffer)
}

// register writes a node, and the service or check on it.
func (s *stateWriter) register(n catalog.Node, on ...field) {
	id := canonicalID(n.ID)
	if id != "" && uuid.Validate(id) != nil { // a server of Consul that restores it stops
		on = append(on, field{memberID, id})
		id = ""
	}
	s.record(recordRegistration, append(object{
		{"Datacenter", s.datacenter}, {"ID", id}, {"Node", n.Name}, {"Address", n.Address},
		{"TaggedAddresses", hidden[string](n.Meta, taggedKey)}, {"NodeMeta", visible(n.Meta)},
		{"CreateIndex", n.CreateIndex}, {"ModifyIndex", n.ModifyIndex},
	}, on...))
}

func packService(s catalog.Service) object {
	var tagged object
	addresses := hidden[serviceAddress](s.Meta, taggedKey)
	for _, name := range slices.Sorted(maps.Keys(addresses)) {
		to := addresses[name]
		tagged = append(tagged, field{
			name, object{{"Address", to.Address}, {"Port", to.Port}},
		})
	}
	meta := visible(s.Meta)
	taken := takenMeta(meta)
	packed := object{
		{"ID", s.ID}, {"Service", s.Name}, {"Tags", s.Tags}, {"Address", s.Address},
		{"TaggedAddresses", tagged}, {"Meta", taken}, {"Port", s.Port},
		{"Weights", object{{"Passing", 1}, {"Warning", 1}}},
		{"CreateIndex", s.CreateIndex}, {"ModifyIndex", s.ModifyIndex},
	}
	if len(taken) < len(meta) {
		packed = append(packed, field{memberMeta, meta})
	}
	return packed
}

func packCheck(c catalog.Check) object {
	sent := hidden[string](c.Meta, checkKey)
	return object{
		{"Node", c.Node}, {"CheckID", c.ID}, {"Name", c.Name}, {"Status", c.Status.String()},
		{"Notes", c.Notes}, {"Output", c.Output}, {"ServiceID", c.ServiceID},
		{"Type", sent["Type"]}, {"Interval", sent["Interval"]}, {"Timeout", sent["Timeout"]},
		{"CreateIndex", c.CreateIndex}, {"ModifyIndex", c.ModifyIndex},
		{memberTTL, uint64(c.TTL)}, {memberMeta, c.Meta},
	}
}

// readState reads a state to its end, and writes it as a backup.
func readState(r io.Reader, backup io.Writer) error {
	u := &unpacker{bufio.NewReader(r)}
	var index uint64
	if _, err := u.members(object{{"LastIndex", &index}}); err != nil {
		return err
	}
	return lockd.WriteBackup(backup, index, func(tx *lockd.Txn) error {
		for {
			kind, err := u.from.ReadByte()
			switch {
			case errors.Is(err, io.EOF):
				return nil
			case err != nil:
				return err
			case kind == recordKey:
				err = u.key(tx)
			case kind == recordRegistration:
				err = u.registration(tx.Catalog())
			default:
				err = u.skip()
			}
			if err != nil {
				return err
			}
		}
	})
}

// key reads a key, and puts it.
func (u *unpacker) key(tx *lockd.Txn) error {
	var key, value string
	var flags uint64
	_, err := u.members(object{{"Key", &key}, {"Value", &value}, {"Flags", &flags}})
	if err == nil {
		_, err = tx.Put(key, []byte(value), &lockd.PutOptions{Flags: flags})
	}
	return err
}

// registration reads a node with what is on it, and registers both. It skips what was imported from
// another Consul cluster.
func (u *unpacker) registration(tx *catalog.Txn) error {
	var b registration
	var own ownCheck
	var peer, id string
	_, err := u.members(object{
		{"ID", &b.ID}, {memberID, &id}, {"Node", &b.Node}, {"Address", &b.Address},
		{"PeerName", &peer},
		{"TaggedAddresses", &b.TaggedAddresses}, {"NodeMeta", &b.NodeMeta},
		{"Service", func() error { return u.service(&b) }},
		{"Check", func() error { return u.check(&b, &own) }},
	})
	if err != nil || peer != "" {
		return err
	}
	b.ID = cmp.Or(id, b.ID)
	if err := errors.Join(b.apply(tx, (*catalog.Txn).PutNode), own.put(tx)); err != nil {
		return fmt.Errorf("%w: state.bin: what is on node %q does not fit: %v", lockd.ErrCorrupt,
			b.Node, err)
	}
	return nil
}

// service reads a service of the registration; nil is none.
func (u *unpacker) service(b *registration) error {
	var s sentService
	var whole map[string]string
	var port uint64
	there, err := u.members(object{
		{"ID", &s.ID}, {"Service", &s.Service}, {"Address", &s.Address}, {"Port", &port},
		{"Tags", &s.Tags}, {"Meta", &s.Meta}, {memberMeta, &whole},
		{"TaggedAddresses", func() error { return u.serviceAddresses(&s) }},
	})
	if whole != nil {
		s.Meta = whole
	}
	if s.Port = int(port); there {
		b.Service = &s
	}
	return err
}

func (u *unpacker) serviceAddresses(s *sentService) error {
	return u.object(func(tag string) error {
		if s.TaggedAddresses == nil {
			s.TaggedAddresses = make(map[string]serviceAddress)
		}
		var to serviceAddress
		var port uint64
		_, err := u.members(object{{"Address", &to.Address}, {"Port", &port}})
		to.Port = int(port)
		s.TaggedAddresses[tag] = to
		return err
	})
}

// ownCheck has the fields of a check that Consul lacks.
type ownCheck struct {
	node, id string // empty: there is none
	ttl      uint64
	meta     map[string]string
}

// put adds the fields to the check, which exists.
func (o *ownCheck) put(tx *catalog.Txn) error {
	if o.ttl == 0 && o.meta == nil {
		return nil
	}
	c, _ := tx.Check(o.node, o.id)
	c.TTL, c.Meta = time.Duration(o.ttl), o.meta
	return tx.PutCheck(c)
}

// check reads a check of the registration; nil is none.
func (u *unpacker) check(b *registration, own *ownCheck) error {
	var c sentCheck
	there, err := u.members(object{
		{"Node", &c.Node}, {"CheckID", &c.CheckID}, {"Name", &c.Name}, {"Status", &c.Status},
		{"Notes", &c.Notes}, {"Output", &c.Output}, {"ServiceID", &c.ServiceID},
		{"Type", &c.Type}, {"Interval", &c.Interval}, {"Timeout", &c.Timeout},
		{memberTTL, &own.ttl}, {memberMeta, &own.meta},
	})
	if own.node, own.id = c.Node, c.id(); there {
		b.Check = &c
	}
	return err
}
