"""What Step Functions' refusals mean. The only place where a vendor's error becomes one of ours.

`MEANINGS` covers every error that botocore's service model declares for the calls in use, and the
common codes that no model declares; a test walks the model. Texts are fixed here: the vendor's own
hold ARNs and account ids.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum, StrEnum, auto
from typing import Any, assert_never

from workflow_bridge.adapter import (
    AdapterError,
    ExecutionNotFound,
    Rejected,
    StartUnknown,
    Unavailable,
)


class Call(StrEnum):
    """The API operations in use."""

    START = "StartExecution"
    RUN = "StartSyncExecution"
    OBSERVE = "DescribeExecution"
    STOP = "StopExecution"
    NARRATE = "GetExecutionHistory"
    CHECK = "DescribeStateMachine"
    LIST = "ListExecutions"

    @property
    def starts(self) -> bool:
        """True where a lost answer leaves open whether something was started."""
        return self in {Call.START, Call.RUN}


class NameTaken(Rejected):
    """An execution of that name exists that is not a running one with the same input."""


class PayloadLocked(Unavailable):
    """The KMS key of input and output cannot be used; states can still be read without them."""


class Denied(Unavailable):
    """IAM does not allow the call. Not while starting: there it is `Rejected`."""


class NotSent(Exception):
    """Raised in place of sending a request that nobody waits for any more."""


class Meaning(Enum):
    """What a code says."""

    THROTTLED = auto()
    FULL = auto()
    CREDENTIALS = auto()
    DENIED = auto()
    REFUSED = auto()
    NAME_TAKEN = auto()
    NO_EXECUTION = auto()
    NOT_STANDARD = auto()
    LOCKED = auto()
    TRANSIENT = auto()
    LOST = auto()


_KMS_ON_START = {
    "KmsAccessDeniedException": Meaning.REFUSED,
    "KmsInvalidStateException": Meaning.REFUSED,
    "KmsThrottlingException": Meaning.THROTTLED,
}
_KMS_ON_READ = {
    "KmsAccessDeniedException": Meaning.LOCKED,
    "KmsInvalidStateException": Meaning.LOCKED,
    "KmsThrottlingException": Meaning.THROTTLED,
}
_MACHINE = {
    "InvalidArn": Meaning.REFUSED,
    "StateMachineDoesNotExist": Meaning.REFUSED,
    "StateMachineDeleting": Meaning.REFUSED,
    "ValidationException": Meaning.REFUSED,
}
_EXECUTION = {
    "ExecutionDoesNotExist": Meaning.NO_EXECUTION,
    "InvalidArn": Meaning.NOT_STANDARD,
    "ValidationException": Meaning.REFUSED,
}
_STARTING = {
    **_MACHINE,
    **_KMS_ON_START,
    "InvalidExecutionInput": Meaning.REFUSED,
    "InvalidName": Meaning.REFUSED,
}

MEANINGS: Mapping[Call, Mapping[str, Meaning]] = {
    Call.START: {
        **_STARTING,
        "ExecutionAlreadyExists": Meaning.NAME_TAKEN,
        "ExecutionLimitExceeded": Meaning.FULL,
    },
    Call.RUN: {**_STARTING, "StateMachineTypeNotSupported": Meaning.REFUSED},
    Call.OBSERVE: {**_EXECUTION, **_KMS_ON_READ},
    Call.STOP: {**_EXECUTION, **_KMS_ON_READ},
    Call.NARRATE: {**_EXECUTION, **_KMS_ON_READ, "InvalidToken": Meaning.TRANSIENT},
    Call.CHECK: {**_MACHINE, **_KMS_ON_READ},
    Call.LIST: {
        **_MACHINE,
        "InvalidToken": Meaning.TRANSIENT,
        "ResourceNotFound": Meaning.REFUSED,
        "StateMachineTypeNotSupported": Meaning.REFUSED,
    },
}

COMMON: Mapping[str, Meaning] = {
    **dict.fromkeys(
        (
            "BandwidthLimitExceeded",
            "EC2ThrottledException",
            "LimitExceededException",
            "PriorRequestNotComplete",
            "ProvisionedThroughputExceededException",
            "RequestLimitExceeded",
            "RequestThrottled",
            "RequestThrottledException",
            "SlowDown",
            "ThrottledException",
            "Throttling",
            "ThrottlingException",
            "TooManyRequestsException",
            "TransactionInProgressException",
        ),
        Meaning.THROTTLED,
    ),
    **dict.fromkeys(
        (
            "AuthFailure",
            "ExpiredToken",
            "ExpiredTokenException",
            "IncompleteSignature",
            "IncompleteSignatureException",
            "InvalidClientTokenId",
            "InvalidSignatureException",
            "MissingAuthenticationToken",
            "MissingAuthenticationTokenException",
            "OptInRequired",
            "RequestExpired",
            "SignatureDoesNotMatch",
            "UnrecognizedClientException",
        ),
        Meaning.CREDENTIALS,
    ),
    **dict.fromkeys(
        ("AccessDenied", "AccessDeniedException", "NotAuthorized", "UnauthorizedOperation"),
        Meaning.DENIED,
    ),
    **dict.fromkeys(("RequestTimeout", "RequestTimeoutException"), Meaning.LOST),
}

_REFUSALS: Mapping[str, str] = {
    "InvalidArn": "Step Functions does not accept the workflow's ARN; check the configuration.",
    "StateMachineDoesNotExist": "The state machine does not exist, or not in this region.",
    "StateMachineDeleting": "The state machine is being deleted.",
    "ValidationException": "Step Functions does not accept the request; check the workflow's ARN.",
    "InvalidExecutionInput": "Step Functions does not accept the arguments as input.",
    "InvalidName": "Step Functions does not accept the name of the execution.",
    "KmsAccessDeniedException": "The state machine's KMS key may not be used by this backend.",
    "KmsInvalidStateException": "The state machine's KMS key is disabled or being deleted.",
    "ResourceNotFound": "The state machine does not exist, or not in this region.",
    "StateMachineTypeNotSupported": (
        "The state machine is of type STANDARD and cannot run inline: set mode: standard."
    ),
}
_EXPRESS_KEEPS_NOTHING = "The state machine is of type EXPRESS, whose executions cannot be listed."

_UNREACHABLE = "Step Functions cannot be reached."
_LOST = "The answer of Step Functions was lost: the execution may or may not have been started."
_NO_ANSWER = "Step Functions did not answer properly."
_CREDENTIALS = "The backend's AWS credentials are missing, expired or not accepted."
_NOT_SENT = "All connections to Step Functions were busy: nothing was sent."


def translate(exc: Exception, call: Call, *, sent: bool) -> AdapterError:
    """Return what an exception of the SDK means for ``call``.

    ``sent`` tells whether the request may have left this process.
    """
    # Not at the top: nothing may load the SDK before the first call.
    from botocore import exceptions as sdk

    match exc:
        case AdapterError():
            return exc
        case NotSent():
            return Unavailable(_NOT_SENT)
        case sdk.ClientError(operation_name=call.value):
            return _answered(exc.response, call)
        case sdk.ClientError():
            return Unavailable("The backend's role cannot be assumed (sts:AssumeRole).")
        case sdk.ProfileNotFound():
            return Unavailable("The backend's AWS profile is not configured on this machine.")
        case sdk.ParamValidationError():
            return Rejected("The request is not one that Step Functions knows.", error="Invalid")
        case sdk.EndpointConnectionError() | sdk.ConnectTimeoutError() | sdk.ProxyConnectionError():
            return Unavailable(_UNREACHABLE)
        case sdk.SSLError() if _is_certificate(exc):
            return Unavailable("The certificate of Step Functions' endpoint is not trusted.")
        case _ if _is_credentials(exc):
            return Unavailable(_CREDENTIALS)
        case _:
            return lost(call) if sent else Unavailable(_UNREACHABLE)


def lost(call: Call) -> AdapterError:
    """Return the error for a request that was sent and not answered."""
    return StartUnknown(_LOST) if call.starts else Unavailable(_NO_ANSWER)


def sdk_missing() -> Unavailable:
    """Return the error for an installation without the SDK."""
    return Unavailable("boto3 is missing: pip install 'mcp-workflow-bridge[aws]'.")


def not_sent() -> Unavailable:
    """Return the error for a request that was never sent."""
    return Unavailable(_NOT_SENT)


def _answered(response: Mapping[str, Any], call: Call) -> AdapterError:
    code = str(response.get("Error", {}).get("Code", ""))
    metadata = response.get("ResponseMetadata", {})
    status = int(metadata.get("HTTPStatusCode", 0))
    retry_after = _retry_after(metadata.get("HTTPHeaders", {}))
    meaning = MEANINGS[call].get(code) or COMMON.get(code) or _meaning_of_status(status)
    return _error(meaning, call, code, retry_after)


def _meaning_of_status(status: int) -> Meaning:
    """An unknown code below 500 was refused before it had an effect; above, nobody can tell."""
    if status == 429:
        return Meaning.THROTTLED
    return Meaning.TRANSIENT if 400 <= status < 500 else Meaning.LOST


def _error(meaning: Meaning, call: Call, code: str, retry_after: timedelta | None) -> AdapterError:
    match meaning:
        case Meaning.THROTTLED:
            return Unavailable(
                "Step Functions asks for fewer calls.", retry_after=retry_after, throttled=True
            )
        case Meaning.FULL:
            return Unavailable("The account has as many open executions as it may have.")
        case Meaning.CREDENTIALS:
            return Unavailable(_CREDENTIALS)
        case Meaning.DENIED:
            text = f"states:{call} is not allowed for this backend's credentials."
            return Rejected(text, error="AccessDenied") if call.starts else Denied(text)
        case Meaning.REFUSED:
            text = _REFUSALS[code]
            if call is Call.LIST and code == "StateMachineTypeNotSupported":
                text = _EXPRESS_KEEPS_NOTHING
            return Rejected(text, error=code)
        case Meaning.NAME_TAKEN:
            return NameTaken(
                "An execution of the same name but with other input exists already.",
                error=code,
                clash=True,
            )
        case Meaning.NO_EXECUTION:
            return ExecutionNotFound("Step Functions knows no such execution.")
        case Meaning.NOT_STANDARD:
            return Rejected(
                "Not an execution that can be looked at or stopped; "
                "EXPRESS state machines need mode: inline.",
                error=code,
            )
        case Meaning.LOCKED:
            return PayloadLocked("The KMS key of the state machine cannot be used.")
        case Meaning.TRANSIENT:
            return Unavailable("Step Functions refused the call.", retry_after=retry_after)
        case Meaning.LOST:
            return lost(call)
    assert_never(meaning)


def _retry_after(headers: Mapping[str, str]) -> timedelta | None:
    seconds = headers.get("retry-after", "")
    return timedelta(seconds=int(seconds)) if seconds.isdecimal() else None


def _is_certificate(exc: Exception) -> bool:
    """A certificate is judged before anything is sent; other TLS errors may come later."""
    cause: object = getattr(exc, "kwargs", {}).get("error")
    return "CERTIFICATE_VERIFY_FAILED" in str(cause) or isinstance(
        cause, ssl.SSLCertVerificationError
    )


def _is_credentials(exc: Exception) -> bool:
    from botocore import exceptions as sdk

    return isinstance(
        exc,
        (
            sdk.CredentialRetrievalError,
            sdk.InvalidConfigError,
            sdk.LoginError,
            sdk.MetadataRetrievalError,
            sdk.NoAuthTokenError,
            sdk.NoCredentialsError,
            sdk.PartialCredentialsError,
            sdk.RefreshWithMFAUnsupportedError,
            sdk.SSOError,
            sdk.TokenRetrievalError,
            sdk.UnknownCredentialError,
        ),
    )
