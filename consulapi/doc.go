// Package consulapi serves Consul's HTTP API from a lockd database: in an HTTP server through
// Handler, and in process, without a socket, through Transport. Programs that were written for
// Consul's keys, sessions, locks, transactions, catalog and checks run on it unchanged.
//
// It follows Consul rule by rule, in status, headers and texts, except where lockd differs on
// purpose. doc/consul-api.md has the rules by their numbers, what lockd serves, and what Consul has
// and lockd does not.
//
// # Sessions
//
// Sessions made here have the lifetime lockd.Independent: they belong to a client, not to the
// process that serves it, and live on in the file until their TTLs, checks or owners end them.
//
// # Time
//
// The wait of a blocking query, like every other deadline, runs on the clock of the database. On a
// mock clock that does not move, a query ends with a change, or with its request's context.
package consulapi
