package consulapi

import (
	"encoding/json"
	"maps"
)

// Members that Consul has and lockd does not are kept as JSON in the Meta of the node, service or
// check, under one of these keys. No client can have such a key: Consul takes none with a dot in
// it.
const (
	definitionKey = "consul.definition"       // of a check: how an agent would look after it
	checkKey      = "consul.check"            // of a check: its Type, Interval and Timeout
	taggedKey     = "consul.tagged_addresses" // of a node or a service
)

// serviceAddress is one of the TaggedAddresses of a service. Those of a node are texts.
type serviceAddress struct {
	Address string
	Port    int
}

// hide returns a copy of meta with the members hidden under the key, in place of what is there.
func hide[T any](meta map[string]string, key string, members map[string]T) map[string]string {
	meta = maps.Clone(meta)
	delete(meta, key)
	if len(members) == 0 {
		return meta
	}
	if meta == nil {
		meta = make(map[string]string)
	}
	meta[key] = string(marshal(members)) // which came as JSON
	return meta
}

// hidden returns the members that are hidden under the key.
func hidden[T any](meta map[string]string, key string) (members map[string]T) {
	if text, has := meta[key]; has && json.Unmarshal([]byte(text), &members) != nil {
		return nil // it was not written here
	}
	return members
}

// visible returns the Meta as a client sees it.
func visible(meta map[string]string) map[string]string {
	if _, has := meta[taggedKey]; !has {
		return meta
	}
	if meta = maps.Clone(meta); len(meta) == 1 {
		return nil
	}
	delete(meta, taggedKey)
	return meta
}
