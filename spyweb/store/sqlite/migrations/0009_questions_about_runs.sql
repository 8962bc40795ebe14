-- What did not succeed is found without a walk over all that did, which is nearly everything.
CREATE INDEX run_unsuccessful ON run (id) WHERE outcome <> 'success';
