// Package histories has no code: its tests let clients of the library, of consulapi.Transport and
// of a server on loopback work on one database at the same time, with cancelled contexts, ends of
// sessions, failed commits and crashes, and then look for an order of their calls in which every
// answer is right. It is a module of its own, so that the checker is no dependency of the library.
package histories
