package consulapi

import (
	"errors"
	"net/http"
	"slices"

	"github.com/lockd/lockd"
)

// maxTxnHelp is where Consul's text on too large a transaction points.
const maxTxnHelp = "https://www.consul.io/docs/agent/options.html#txn_max_req_len"

// txnOp is one operation as it is sent. The first member that is set counts (T1).
type txnOp struct {
	KV      *txnKV
	Node    *txnNode
	Service *txnService
	Check   *txnCheck
}

// txnError is why an operation failed.
type txnError struct {
	OpIndex int
	What    string
}

// txnAnswer is what came of a transaction: results, or errors.
type txnAnswer struct {
	Results []txnResult
	Errors  []txnError
}

// results returns the results, in which each entry of a get-tree is one; or nil if there are none
// because of an error.
func (a txnAnswer) results() any {
	if a.Results == nil {
		return nil
	}
	return list[txnResult](func(yield func(txnResult) bool) {
		for _, result := range a.Results {
			tree := result.tree
			if tree == nil {
				tree = listOf(result.KV)
			}
			for e := range tree {
				result.KV = e
				if !yield(result) {
					return
				}
			}
		}
	})
}

// answer returns the answer to the transaction. more are the members that only some answers have.
func (a txnAnswer) answer(more ...field) answer {
	shown := answer{value: append(object{{"Results", a.results()}, {"Errors", a.Errors}}, more...)}
	if a.Errors != nil {
		shown.status = http.StatusConflict
	}
	return shown
}

// readAnswer returns the answer to a transaction that could not write anything (T11). asked is
// false if the database was not asked.
func (a txnAnswer) readAnswer(index int, asked bool) answer {
	shown := a.answer(readMembers(index, asked, "")...)
	shown.read, shown.unasked = true, !asked
	return shown
}

// readMembers are the members that some answers to a read have besides what was read. They say the
// same as the headers of a read, but for the index.
func readMembers(index int, asked bool, consistency string) object {
	return object{
		{"Index", index}, {"LastContact", 0}, {"KnownLeader", asked},
		{"ConsistencyLevel", consistency}, {"NotModified", false}, {"Backend", 0},
		{"ResultsFilteredByACLs", false},
	}
}

func (h *handler) txnRoutes() map[string][]method {
	return map[string][]method{
		"txn": {{http.MethodPut, h.txn}},
	}
}

func (h *handler) txn(r *request) (answer, error) {
	ops, err := h.parseTxn(r)
	if err != nil {
		return answer{}, err
	}
	writes := false
	for _, op := range ops {
		writes = writes || op.writes()
	}
	if writes {
		result, err := h.runTxn(ops)
		if slices.ContainsFunc(ops, func(op operation) bool { _, is := op.(*txnKV); return !is }) {
			h.repair()
		}
		return result.answer(), err
	}
	if err := r.parseBlocking(); err != nil { // bad parameters are refused here too (B16)
		return answer{}, err
	}
	if result := checkTxn(ops); result.Errors != nil {
		return result.readAnswer(0, false), nil
	}
	snapshot := h.db.Snapshot()
	result := applyAll(ops, state{keys: snapshot, catalog: snapshot.Catalog()})
	return result.readAnswer(1, true), nil
}

// parseTxn returns the operations in the body (T1 to T4).
func (h *handler) parseTxn(r *request) ([]operation, error) {
	decoder, err := h.decoder(r, maxTxnHelp)
	if err != nil {
		return nil, err
	}
	var sent []*txnOp
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&sent); err != nil {
		return nil, badRequest("Failed to parse body: %v", plainly(err))
	}
	if len(sent) > h.opts.MaxTxnOps {
		return nil, refuse(http.StatusRequestEntityTooLarge,
			"Transaction contains too many operations (%d > %d)", len(sent), h.opts.MaxTxnOps)
	}
	ops := make([]operation, len(sent))
	for i, op := range sent {
		switch {
		case op == nil:
		case op.KV != nil:
			ops[i] = op.KV
		case op.Node != nil:
			op.Node.h = h
			op.Node.find(sent[:i])
			ops[i] = op.Node
		case op.Service != nil:
			ops[i] = op.Service
		case op.Check != nil:
			ops[i] = op.Check
		}
		if ops[i] == nil { // Consul drops it, or breaks down (X28)
			return nil, badRequest("operation %d is empty", i)
		}
	}
	return ops, nil
}

// errTxnRefused makes Update roll back the transaction. It is never returned to a caller.
var errTxnRefused = errors.New("an operation was refused")

// fail adds the reason why operation i failed.
func (a *txnAnswer) fail(i int, err error) {
	a.Errors = append(a.Errors, txnError{i, err.Error()})
}

// checkTxn returns the mistakes in the operations that do not depend on the state (T9).
func checkTxn(ops []operation) (result txnAnswer) {
	for i, op := range ops {
		if err := op.check(); err != nil {
			result.fail(i, err)
		}
	}
	return result
}

// runTxn does all operations in one transaction (T7). If one fails the others are tried too, so
// that every failure is told, and the transaction is rolled back (T8).
func (h *handler) runTxn(ops []operation) (txnAnswer, error) {
	result := checkTxn(ops)
	if result.Errors != nil {
		return result, nil
	}
	err := h.db.Update(func(tx *lockd.Txn) error {
		room := maxCollected
		result = applyAll(ops, state{keys: tx, catalog: tx.Catalog(), tx: tx, room: &room})
		if result.Errors != nil {
			return errTxnRefused
		}
		return nil
	})
	if errors.Is(err, errTxnRefused) {
		err = nil
	}
	return result, err
}

// applyAll does the operations on the state. It returns the results of all, or all failures.
func applyAll(ops []operation, on state) txnAnswer {
	result := txnAnswer{Results: []txnResult{}}
	for i, op := range ops {
		results, err := op.apply(on)
		if err != nil {
			result.fail(i, err)
			continue
		}
		result.Results = append(result.Results, results...)
	}
	if result.Errors != nil {
		result.Results = nil
	}
	return result
}
