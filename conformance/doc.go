// Package conformance has no code: its tests put Consul's official Go client to package consulapi.
// They run once through consulapi.Transport, in process, and once over loopback, and each is named
// for the rule that it shows, by its number in doc/semantics.md or doc/consul-api.md. It is a
// module of its own, so that the client's dependencies are not the library's.
package conformance
