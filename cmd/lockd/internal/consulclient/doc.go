// Package consulclient uses a server that speaks Consul's HTTP API, lockd or a Consul agent: its
// keys, sessions and transactions, and on top of them a session that is kept alive, the lock of a
// key, and a slot of a semaphore, by the protocols of Consul's own client.
//
// # Time
//
// What is done under a session has to be over before the session can end. A session lives for at
// least its TTL after the last renewal that succeeded, counted from when that was sent. A Session
// asks for the next one after a third of that, and if none has succeeded after two thirds it gives
// up: Done is closed, and until Deadline, at five sixths, there is time to stop what is being done.
package consulclient
