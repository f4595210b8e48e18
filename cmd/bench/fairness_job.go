package bench

import "net/http"

// by makes a job for some of the rivals.
func (ar *arena) by(kind, path string, rivals ...*mecha) job {
	j := job{Kind: kind}
	for _, m := range rivals {
		j.Actors = append(j.Actors, actor{Address: m.address, Key: m.key, Path: path})
	}
	return j
}

// historyJob reads pages of the rival's own history with a filter that nothing
// matches, so that the relay looks through as many rows as it allows.
func historyJob(ar *arena) job {
	j := ar.by(requestsKind, "/api/v1/mecha/"+ar.rivals[0].address+"/messages?limit=1&message_type="+rareType,
		ar.rivals[0])
	j.Method, j.Status = "GET", http.StatusOK
	return j
}

func ackJob(ar *arena) job {
	j := ar.by(acksKind, "", ar.rivals[0])
	j.Message, j.Query = ar.target, "sync_limit=0&events=acks"
	return j
}

func halfFrameJob(ar *arena) job {
	j := ar.by(halfFramesKind, "", ar.rivals...)
	j.Query = "sync_limit=0"
	return j
}

func unreadJob(ar *arena) job {
	j := ar.by(unreadKind, "", ar.rivals...)
	j.Query = "sync_limit=1000"
	return j
}

func slowBodyJob(ar *arena) job { return ar.by(slowBodiesKind, "", ar.rivals[0]) }

func searchJob(ar *arena) job {
	j := ar.by(requestsKind, searchPath, ar.rivals[0])
	j.Method, j.Status = "POST", http.StatusOK
	for _, q := range ar.queries {
		j.Bodies = append(j.Bodies, string(q))
	}
	return j
}

// sendJob sends at four times the default rate limit of a key, so that the burst
// which is allowed above the limit is soon used up.
func sendJob(ar *arena) job {
	j := ar.by(requestsKind, sendPath, ar.rivals[0])
	j.Method, j.Status, j.Rate = "POST", http.StatusCreated, 4*500
	j.Bodies = []string{string(appendSend(nil, ar.rivals[0], []byte(`{}`)))}
	return j
}
